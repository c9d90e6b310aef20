package lance_io.spark;

import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.types.StructType;

/**
 * The source in Python of the same name, which writes, and which streams read from.
 *
 * <p>Spark finds it in the package `pyspark_lance_io`, or where it was registered, whether this JAR is there or not.
 */
final class PythonSource {
  static final String NAME = "lance_io";

  private PythonSource() {}

  static WriteBuilder writeBuilder(LogicalWriteInfo info, TableOptions options) {
    return ((SupportsWrite) table(info.schema(), options)).newWriteBuilder(info);
  }

  static MicroBatchStream stream(StructType schema, TableOptions options, String checkpoint) {
    SupportsRead table = (SupportsRead) table(schema, options);
    return table.newScanBuilder(options.forSpark()).build().toMicroBatchStream(checkpoint);
  }

  private static Table table(StructType schema, TableOptions options) {
    PythonDataSourceV2 source = new PythonDataSourceV2();
    source.setShortName(NAME);
    return source.getTable(schema, new Transform[0], options.forSpark().asCaseSensitiveMap());
  }
}
