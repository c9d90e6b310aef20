package lance_io.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.DeltaBatchWrite;
import org.apache.spark.sql.connector.write.DeltaWrite;
import org.apache.spark.sql.connector.write.DeltaWriteBuilder;
import org.apache.spark.sql.connector.write.DeltaWriterFactory;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperationInfo;
import org.apache.spark.sql.connector.write.SupportsDelta;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** DELETE, UPDATE and MERGE INTO: rows leave by address, new ones are written, in one version. */
final class RowChange implements SupportsDelta {
  private static final String ADDRESS = "_rowaddr";
  private static final String ID = "_rowid";

  private final CatalogTable table;
  private final RowLevelOperationInfo info;

  RowChange(CatalogTable table, RowLevelOperationInfo info) {
    this.table = table;
    this.info = info;
  }

  @Override
  public Command command() {
    return info.command();
  }

  @Override
  public String description() {
    return "lance_io " + info.command() + " " + table.name();
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return table.newScanBuilder(options).ofChange();
  }

  @Override
  public NamedReference[] rowId() {
    return new NamedReference[] {Expressions.column(ADDRESS)};
  }

  /** The ids that updated rows keep. */
  @Override
  public NamedReference[] requiredMetadataAttributes() {
    return table.hasStableRowIds() ? new NamedReference[] {Expressions.column(ID)} : new NamedReference[0];
  }

  @Override
  public DeltaWriteBuilder newWriteBuilder(LogicalWriteInfo written) {
    return new DeltaWriteBuilder() {
      @Override
      public DeltaWrite build() {
        return plan(written);
      }
    };
  }

  private DeltaWrite plan(LogicalWriteInfo written) {
    String python = table.options().python();
    ObjectNode request = table.request("plan_change").put("statement", info.command().toString());
    request.put("schema", written.schema().json());
    Changes.put(request, "write_options", info.options().asCaseSensitiveMap());
    JsonNode planned = Changes.plan(python, request);
    String write = planned.get("write").asText();
    DeltaWriterFactory writers =
        new RowChangeWriter.Factory(python, planned.get("task").asText(), planned.get("moves").asBoolean());
    return new Write(python, write, writers);
  }

  /** The write of one statement: what is the same for all of its tasks. */
  private final class Write extends CommittedWrite implements DeltaWrite, DeltaBatchWrite {
    private final DeltaWriterFactory writers;

    Write(String python, String write, DeltaWriterFactory writers) {
      super(python, write, command() == Command.MERGE);
      this.writers = writers;
    }

    @Override
    public String description() {
      return RowChange.this.description();
    }

    @Override
    public DeltaBatchWrite toBatch() {
      return this;
    }

    @Override
    public DeltaWriterFactory createBatchWriterFactory(PhysicalWriteInfo physical) {
      return writers;
    }
  }
}
