package lance_io.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import java.util.Objects;
import java.util.OptionalLong;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.SupportsRuntimeV2Filtering;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** A read of some columns and rows of a version, or of the number of these rows, in tasks. */
class LanceScan implements Scan, Batch, SupportsReportStatistics {
  static final StructType COUNT = new StructType().add("count(*)", DataTypes.LongType, false);

  private static final int SHOWN_MAX = 200; // of the predicates of joins, which may have many values

  private final LanceTable table;
  private final StructType required; // null for all columns, and for a count
  private final Pushed pushed;
  private final String shown;
  private List<Predicate> runtime = List.of(); // of joins, known only when the other side has been read
  private JsonNode plan; // of the scan as it is now
  private boolean streams;

  LanceScan(LanceTable table, StructType required, Pushed pushed, String shown) {
    this.table = table;
    this.required = required;
    this.pushed = pushed;
    this.shown = shown;
  }

  final StructType columns() {
    return required == null ? table.schema() : required;
  }

  final Pushed pushed() {
    return pushed;
  }

  @Override
  public StructType readSchema() {
    return pushed.counts() ? COUNT : columns();
  }

  @Override
  public String description() {
    String what = pushed.counts() ? "count" : "columns [" + String.join(", ", columns().fieldNames()) + "]";
    return "lance_io " + table.name() + " version " + table.number() + ", " + what + ", " + shown + index() + joins();
  }

  /** Which indices answer the filter: known when the scan is planned, which costs nothing more afterwards. */
  private String index() {
    boolean mayHaveIndex = table.hasIndices() && (pushed.filter() != null || !runtime.isEmpty());
    return mayHaveIndex && plan().hasNonNull("index") ? ", rows by index " + plan().get("index").asText() : "";
  }

  private synchronized String joins() {
    if (runtime.isEmpty()) {
      return "";
    }
    String text = runtime.toString();
    return ", of joins " + (text.length() > SHOWN_MAX ? text.substring(0, SHOWN_MAX) + "..." : text);
  }

  @Override
  public Batch toBatch() {
    return this;
  }

  @Override
  public MicroBatchStream toMicroBatchStream(String checkpoint) {
    streams = true;
    return PythonSource.stream(table.schema(), table.options(), checkpoint);
  }

  @Override
  public ColumnarSupportMode columnarSupportMode() {
    return streams ? ColumnarSupportMode.UNSUPPORTED : ColumnarSupportMode.SUPPORTED; // the source in Python gives rows
  }

  @Override
  public CustomMetric[] supportedCustomMetrics() {
    return TaskMetrics.supported();
  }

  // -- planning -------------------------------------------------------------------------------------------------------

  private synchronized JsonNode plan() {
    if (plan == null) {
      ObjectNode request = table.request("plan").put("schema", columns().json()).put("counts", pushed.counts());
      request.put("filter", pushed.filter()).put("limit", pushed.limit()).put("offset", pushed.offset());
      request.set("order", Worker.parsed(pushed.order()));
      request.set("sample", pushed.sample() == null ? null : pushed.sample().json());
      request.set("runtime", Predicates.json(runtime.toArray(new Predicate[0])));
      plan = Worker.ask(table.options().python(), request);
    }
    return plan;
  }

  @Override
  public InputPartition[] planInputPartitions() {
    JsonNode parts = plan().get("parts");
    InputPartition[] partitions = new InputPartition[parts.size()];
    for (int i = 0; i < partitions.length; i++) {
      partitions[i] = new TaskPart(table.options().python(), plan().get("job").asText(), parts.get(i).asText());
    }
    return partitions;
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new TaskReaderFactory();
  }

  /** Bytes of the columns that are read, decoded. Rows are those before any filter, and so unknown where there is one. */
  @Override
  public Statistics estimateStatistics() {
    long bytes = plan().get("bytes").asLong();
    JsonNode rows = plan().get("rows");
    return new Statistics() {
      @Override
      public OptionalLong sizeInBytes() {
        return OptionalLong.of(bytes);
      }

      @Override
      public OptionalLong numRows() {
        return rows.isNull() ? OptionalLong.empty() : OptionalLong.of(rows.asLong());
      }
    };
  }

  /**
   * A scan of which joins leave rows out: of queries, not of statements that change rows. There Spark would find the
   * rows twice, once to collect all their columns on the driver, and refuses columns of maps.
   */
  static final class OfQuery extends LanceScan implements SupportsRuntimeV2Filtering {
    OfQuery(LanceTable table, StructType required, Pushed pushed, String shown) {
      super(table, required, pushed, shown);
    }

    @Override
    public NamedReference[] filterAttributes() {
      Pushed pushed = pushed();
      if (pushed.counts() || pushed.limit() >= 0 || pushed.offset() > 0) {
        return new NamedReference[0];
      }
      StructField[] fields = columns().fields();
      NamedReference[] names = new NamedReference[fields.length];
      for (int i = 0; i < names.length; i++) {
        names[i] = Expressions.column("`" + fields[i].name().replace("`", "``") + "`");
      }
      return names;
    }

    /** The rows that a join needs. Spark calls this again, with all predicates, where it plans again. */
    @Override
    public void filter(Predicate[] predicates) {
      joined(List.of(predicates));
    }
  }

  final synchronized void joined(List<Predicate> predicates) {
    runtime = predicates;
    plan = null;
  }

  // -- by value: Spark shares the exchanges of equal scans --------------------------------------------------------------

  @Override
  public boolean equals(Object other) {
    return other instanceof LanceScan that
        && that.table.equals(table)
        && that.readSchema().equals(readSchema())
        && that.pushed.equals(pushed)
        && that.runtime.equals(runtime);
  }

  @Override
  public int hashCode() {
    return Objects.hash(table, readSchema(), pushed);
  }
}
