package lance_io.spark;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The source in Python of the same name, which writes, and which streams read from.
 *
 * <p>Spark finds it in the package `pyspark_lance_io`, or where it was registered, whether this JAR is there or not.
 */
final class PythonSource {
  static final String NAME = "lance_io";

  private PythonSource() {}

  static WriteBuilder writeBuilder(LogicalWriteInfo info, TableOptions options) {
    return ((SupportsWrite) table(info.schema(), options)).newWriteBuilder(new Info(info, options));
  }

  static MicroBatchStream stream(StructType schema, TableOptions options, String checkpoint) {
    SupportsRead table = (SupportsRead) table(schema, options);
    return table.newScanBuilder(options.forSpark()).build().toMicroBatchStream(checkpoint);
  }

  /** Spark gives a table of a catalog no path: it comes from the table's own options. */
  private record Info(LogicalWriteInfo of, TableOptions table) implements LogicalWriteInfo {
    @Override
    public CaseInsensitiveStringMap options() {
      Map<String, String> all = new HashMap<>(table.forSpark().asCaseSensitiveMap());
      all.putAll(of.options().asCaseSensitiveMap());
      return new CaseInsensitiveStringMap(all);
    }

    @Override
    public String queryId() {
      return of.queryId();
    }

    @Override
    public StructType schema() {
      return of.schema();
    }
  }

  private static Table table(StructType schema, TableOptions options) {
    PythonDataSourceV2 source = new PythonDataSourceV2();
    source.setShortName(NAME);
    return source.getTable(schema, new Transform[0], options.forSpark().asCaseSensitiveMap());
  }
}
