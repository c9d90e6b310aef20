package lance_io.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.NullNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.GeneralScalarExpression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.Decimal;

/** Spark's predicates as JSON. Python decides which of them it computes exactly as Spark does. */
final class Predicates {
  private Predicates() {}

  static ArrayNode json(Predicate[] predicates) {
    ArrayNode all = Worker.JSON.createArrayNode();
    for (Predicate predicate : predicates) {
      all.add(json(predicate));
    }
    return all;
  }

  /** An expression; null for one that has no form here, within the others. */
  private static JsonNode json(Expression expression) {
    ObjectNode node = Worker.JSON.createObjectNode();
    if (expression instanceof NamedReference column) {
      putPath(node, column);
    } else if (expression instanceof Literal<?> literal) {
      node.put("lit", text(literal.value())).put("type", literal.dataType().simpleString());
    } else if (expression instanceof GeneralScalarExpression call) { // predicates are such, too
      ArrayNode arguments = node.put("op", call.name()).putArray("args");
      for (Expression argument : call.children()) {
        arguments.add(json(argument));
      }
    } else {
      return NullNode.getInstance();
    }
    return node;
  }

  /** Adds the path of a column to a node. */
  static void putPath(ObjectNode node, NamedReference column) {
    ArrayNode path = node.putArray("col");
    for (String name : column.fieldNames()) {
      path.add(name);
    }
  }

  private static String text(Object value) {
    if (value == null) {
      return null;
    }
    return value instanceof Decimal decimal ? decimal.toJavaBigDecimal().toPlainString() : value.toString();
  }
}
