package lance_io.spark;

import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** `format("lance_io")`. Spark looks here before it looks for a source in Python of that name. */
public final class Provider implements TableProvider, DataSourceRegister {
  private LanceTable inferred; // of the last call of inferSchema: the table pins the version that its schema is of

  @Override
  public String shortName() {
    return PythonSource.NAME;
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    Release.check();
    inferred = new LanceTable(new TableOptions(options.asCaseSensitiveMap()), null);
    return inferred.schema();
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> given) {
    Release.check();
    TableOptions options = new TableOptions(given);
    if (inferred != null && inferred.options().equals(options) && inferred.schema().equals(schema)) {
      return inferred;
    }
    return new LanceTable(options, schema);
  }

  /** A write gives the schema of its rows, which need no table yet. */
  @Override
  public boolean supportsExternalMetadata() {
    return true;
  }
}
