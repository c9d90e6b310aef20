package lance_io.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsDynamicOverwrite;
import org.apache.spark.sql.connector.write.SupportsOverwriteV2;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;

/** INSERT in its forms: rows are added, or replace all, those that a condition selects, or those of the same values. */
final class TableWrite extends CommittedWrite {
  private final TableOptions options;
  private final LogicalWriteInfo info;
  private final String task; // what tasks need of the write, as Python serialized it
  private final String kind;
  private final String shown;

  private TableWrite(TableOptions options, LogicalWriteInfo info, JsonNode planned, String kind, String name) {
    super(options.python(), planned.get("write").asText(), kind.equals("append"));
    this.options = options;
    this.info = info;
    this.task = planned.get("task").asText();
    this.kind = kind;
    this.shown = name + ", " + kind;
  }

  /** Collects which rows a write replaces. */
  static final class Builder implements WriteBuilder, SupportsOverwriteV2, SupportsDynamicOverwrite {
    private final CatalogTable table;
    private final LogicalWriteInfo info;
    private String kind = "append";
    private Predicate[] predicates = new Predicate[0];

    Builder(CatalogTable table, LogicalWriteInfo info) {
      this.table = table;
      this.info = info;
    }

    @Override
    public WriteBuilder truncate() {
      kind = "replace";
      return this;
    }

    @Override
    public boolean canOverwrite(Predicate[] predicates) {
      return table.computes(predicates);
    }

    @Override
    public WriteBuilder overwrite(Predicate[] predicates) {
      kind = "where";
      this.predicates = predicates;
      return this;
    }

    @Override
    public WriteBuilder overwriteDynamicPartitions() {
      kind = "dynamic";
      return this;
    }

    @Override
    public Write build() {
      TableOptions options = table.options();
      ObjectNode request = table.request("plan_write").put("kind", kind).put("schema", info.schema().json());
      Changes.put(request, "write_options", info.options().asCaseSensitiveMap());
      request.set("predicates", Predicates.json(predicates));
      return new TableWrite(options, info, Changes.plan(options.python(), request), kind, table.name());
    }
  }

  @Override
  public String description() {
    return "lance_io " + shown;
  }

  @Override
  public BatchWrite toBatch() {
    return this;
  }

  /** Streams are written by the source in Python, which knows their batches. */
  @Override
  public StreamingWrite toStreaming() {
    WriteBuilder builder = PythonSource.writeBuilder(info, options);
    return (kind.equals("replace") ? ((SupportsTruncate) builder).truncate() : builder).build().toStreaming();
  }

  @Override
  public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo physical) {
    return new TableWriter.Factory(python(), task);
  }
}
