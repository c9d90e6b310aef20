package lance_io.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A table about a table, such as `lance.t.history`. It is small: the driver's worker has all rows when it is loaded.
 *
 * @param name in plans
 * @param schema its columns
 * @param part the only task
 */
@SuppressWarnings("deprecation") // of schema(), which Spark itself still calls
record MetadataTable(String name, StructType schema, TaskPart part) implements SupportsRead, Scan, Batch {
  static final Set<String> NAMES = Set.of("history", "fragments", "files", "indices");

  static MetadataTable load(TableOptions options, Moment moment, String table, String name) {
    ObjectNode request = options.request("about").put("table", table);
    JsonNode answer =
        Worker.ask(options.python(), request.put("ref", moment.version()).put("micros", moment.micros()));
    TaskPart part = new TaskPart(options.python(), answer.get("job").asText(), answer.get("part").asText());
    return new MetadataTable(name, (StructType) DataType.fromJson(answer.get("schema").asText()), part);
  }

  @Override
  public Set<TableCapability> capabilities() {
    return Set.of(TableCapability.BATCH_READ);
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return () -> this;
  }

  @Override
  public StructType readSchema() {
    return schema;
  }

  @Override
  public String description() {
    return "lance_io " + name;
  }

  @Override
  public Batch toBatch() {
    return this;
  }

  @Override
  public InputPartition[] planInputPartitions() {
    return new InputPartition[] {part};
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new TaskReaderFactory();
  }
}
