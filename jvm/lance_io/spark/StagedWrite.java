package lance_io.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.EnumSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriteSummary;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.types.StructType;

/** A table that CTAS or RTAS makes: its first version, or the one that replaces it, is there at the end or never. */
@SuppressWarnings("deprecation") // of schema(), which Spark itself still calls
final class StagedWrite implements StagedTable, SupportsWrite {
  private final TableOptions options;
  private final StructType schema;
  private final Map<String, String> properties;
  private final String name;
  private final String write;
  private WriterCommitMessage[] results = new WriterCommitMessage[0];
  private WriteSummary summary; // by Spark; null without rows
  private JsonNode committed; // the answer of the commit

  /** Plans it. `mode` is create, replace or create_or_replace. */
  StagedWrite(TableOptions options, String name, StructType schema, Map<String, String> properties, String mode) {
    this.options = options;
    this.name = name;
    this.schema = schema;
    this.properties = properties;
    ObjectNode request = options.request("plan_create").put("mode", mode).put("schema", schema.json());
    Changes.put(request, "properties", properties);
    write = Changes.plan(options.python(), request).get("write").asText();
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public StructType schema() {
    return schema;
  }

  @Override
  public Map<String, String> properties() {
    return properties;
  }

  @Override
  public Set<TableCapability> capabilities() {
    return EnumSet.of(TableCapability.BATCH_WRITE, TableCapability.TRUNCATE);
  }

  @Override
  public void commitStagedChanges() {
    committed = Changes.commit(options.python(), write, results, summary);
  }

  @Override
  public void abortStagedChanges() {
    Changes.abort(options.python(), write, results);
  }

  @Override
  public CustomTaskMetric[] reportDriverMetrics() {
    return WriteMetrics.of(committed);
  }

  // -- the rows ---------------------------------------------------------------------------------------------------------

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    return new Rows();
  }

  private final class Rows implements SupportsTruncate, Write, BatchWrite {
    @Override
    public WriteBuilder truncate() {
      return this;
    }

    @Override
    public Write build() {
      return this;
    }

    @Override
    public String description() {
      return "lance_io " + name + ", new";
    }

    @Override
    public BatchWrite toBatch() {
      return this;
    }

    @Override
    public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo physical) {
      return new TableWriter.Factory(options.python(), write);
    }

    /** Keeps the results until Spark says that all has succeeded. */
    @Override
    public void commit(WriterCommitMessage[] messages) {
      results = messages.clone();
    }

    @Override
    public void commit(WriterCommitMessage[] messages, WriteSummary counted) {
      summary = counted;
      commit(messages);
    }

    @Override
    public void abort(WriterCommitMessage[] messages) {
      Changes.abort(options.python(), write, messages);
    }
  }
}
