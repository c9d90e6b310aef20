package lance_io.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.Count;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.aggregate.Max;
import org.apache.spark.sql.connector.expressions.aggregate.Min;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Aggregates whose values the manifest or indices have: one row, without reading any.
 *
 * @param values of the types of the schema
 */
record AggregateScan(LanceTable table, StructType readSchema, String shown, List<Object> values) implements LocalScan {

  /** The scan of an aggregation; null if data have to be read for it. */
  static AggregateScan of(LanceTable table, String filter, Aggregation aggregation) {
    AggregateFunc[] functions = aggregation.aggregateExpressions();
    if (aggregation.groupByExpressions().length > 0) {
      return null;
    }
    ObjectNode request = table.request("aggregate").put("filter", filter);
    ArrayNode asked = request.putArray("aggregates");
    StructType schema = new StructType();
    for (AggregateFunc function : functions) {
      DataType type = ask(asked.addObject(), table, function);
      if (type == null) {
        return null;
      }
      schema = schema.add(function.toString(), type, function instanceof Min || function instanceof Max);
    }
    JsonNode texts = Worker.ask(table.options().python(), request).get("values");
    if (texts.isNull()) {
      return null;
    }
    List<Object> values = new ArrayList<>(); // nulls among them
    for (int i = 0; i < functions.length; i++) {
      values.add(texts.get(i).isNull() ? null : value(texts.get(i).asText(), schema.fields()[i].dataType()));
    }
    String from = filter == null ? "" : ", filter " + filter;
    return new AggregateScan(table, schema, Arrays.toString(functions) + from, values);
  }

  /** Adds an aggregate to a request. Returns the type of its value; null for one that only Spark computes. */
  private static DataType ask(ObjectNode node, LanceTable table, AggregateFunc function) {
    if (function instanceof CountStar) {
      node.put("fn", "COUNT_STAR");
      return DataTypes.LongType;
    }
    boolean counts = function instanceof Count count && !count.isDistinct();
    if (!counts && !(function instanceof Min) && !(function instanceof Max)) {
      return null;
    }
    Expression argument = function.children()[0];
    DataType type = argument instanceof NamedReference column ? table.typeOf(column.fieldNames()) : null;
    if (type == null) {
      return null;
    }
    node.put("fn", counts ? "COUNT" : function instanceof Min ? "MIN" : "MAX");
    Predicates.putPath(node, (NamedReference) argument);
    return counts ? DataTypes.LongType : type;
  }

  private static Object value(String text, DataType type) {
    if (type instanceof ByteType) {
      return Byte.valueOf(text);
    } else if (type instanceof ShortType) {
      return Short.valueOf(text);
    } else if (type instanceof IntegerType || type instanceof DateType) {
      return Integer.valueOf(text);
    } else if (type instanceof FloatType) {
      return Float.valueOf(text);
    } else if (type instanceof DoubleType) {
      return Double.valueOf(text);
    } else if (type instanceof BooleanType) {
      return Boolean.valueOf(text);
    } else if (type instanceof DecimalType decimal) {
      return Decimal.apply(new BigDecimal(text), decimal.precision(), decimal.scale());
    } else if (type instanceof StringType) {
      return UTF8String.fromString(text);
    }
    return Long.valueOf(text); // also times, in microseconds
  }

  @Override
  public String description() {
    return "lance_io " + table.name() + " version " + table.number() + ", without data " + shown;
  }

  @Override
  public InternalRow[] rows() {
    return new InternalRow[] {new GenericInternalRow(values.toArray())};
  }
}
