package lance_io.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The source in Python of the same name, which writes, and which streams read from.
 *
 * <p>Spark finds it in the package `pyspark_lance_io`, or where it was registered, whether this JAR is there or not.
 */
final class PythonSource {
  static final String NAME = "lance_io";

  private static final String MERGES = "mergeSchema";
  private static final String IS_EXACT = "caseSensitive";
  private static final String IS_EXACT_IN_SPARK = "spark.sql.caseSensitive";

  private PythonSource() {}

  static WriteBuilder writeBuilder(LogicalWriteInfo info, TableOptions options) {
    Info own = Info.of(info, options);
    return ((SupportsWrite) table(own.schema(), options)).newWriteBuilder(own);
  }

  static MicroBatchStream stream(StructType schema, TableOptions options, String checkpoint) {
    SupportsRead table = (SupportsRead) table(schema, options);
    return table.newScanBuilder(options.forSpark()).build().toMicroBatchStream(checkpoint);
  }

  /**
   * A write as the source in Python gets it.
   *
   * @param options also the path, which Spark gives no table of a catalog
   * @param schema of the rows, where schemas are merged with names as the table has them: Spark does not resolve them
   *     for a write to a path
   */
  private record Info(String queryId, CaseInsensitiveStringMap options, StructType schema)
      implements LogicalWriteInfo {
    static Info of(LogicalWriteInfo given, TableOptions table) {
      Map<String, String> all = new HashMap<>(table.forSpark().asCaseSensitiveMap());
      all.putAll(given.options().asCaseSensitiveMap());
      StructType schema = given.schema();
      if (TableOptions.has(all, MERGES)) {
        if (!TableOptions.has(all, IS_EXACT)) {
          all.put(IS_EXACT, SparkSession.active().conf().get(IS_EXACT_IN_SPARK, "false"));
        }
        ObjectNode request = Worker.request("stored_names").put("schema", schema.json());
        Changes.put(request, "options", new TableOptions(all).texts());
        schema = (StructType) DataType.fromJson(Changes.plan(table.python(), request).get("schema").asText());
      }
      return new Info(given.queryId(), new CaseInsensitiveStringMap(all), schema);
    }
  }

  private static Table table(StructType schema, TableOptions options) {
    PythonDataSourceV2 source = new PythonDataSourceV2();
    source.setShortName(NAME);
    return source.getTable(schema, new Transform[0], options.forSpark().asCaseSensitiveMap());
  }
}
