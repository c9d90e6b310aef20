package lance_io.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.connector.catalog.SupportsMetadataColumns;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * One version of a table.
 *
 * <p>It is opened at first use, because a write needs none: its table may not exist yet. All uses of one DataFrame share
 * this object, and so read the version that was opened.
 */
@SuppressWarnings("deprecation") // of schema(), which Spark itself still calls
class LanceTable implements SupportsRead, SupportsWrite, SupportsMetadataColumns {
  private static final String DEFAULT_REDACTION = "(?i)secret|password|token|access[.]?key"; // Spark's

  private final TableOptions options;
  private final StructType given; // by the caller of the read or write; null for the table's own
  private final Moment moment;
  private final String shown; // in plans; null for the path
  private JsonNode opened;
  private StructType own;

  LanceTable(TableOptions options, StructType given) {
    this(options, given, Moment.NEWEST, null);
  }

  LanceTable(TableOptions options, StructType given, Moment moment, String shown) {
    this.options = options;
    this.given = given;
    this.moment = moment;
    this.shown = shown;
  }

  TableOptions options() {
    return options;
  }

  final synchronized JsonNode opened() {
    if (opened == null) {
      ObjectNode request = options.request("load").put("ref", moment.version()).put("micros", moment.micros());
      // What Spark hides of options in SQL: Python warns of credentials that it would show.
      request.putArray("redaction").add(setting("spark.redaction.regex")).add(setting("spark.sql.redaction.options.regex"));
      open(Worker.ask(options.python(), request));
    }
    return opened;
  }

  /** Columns that a query needs, of structs only those members; structs inside of lists and maps stay whole. */
  StructType narrowed(StructType needed) {
    Set<String> narrowable = new HashSet<>();
    opened().get("narrowable").forEach(name -> narrowable.add(name.asText()));
    StructType whole = schema();
    StructField[] fields = needed.fields().clone();
    for (int i = 0; i < fields.length; i++) {
      int at = position(whole, fields[i].name());
      if (at >= 0) { // else a metadata column
        StructField own = whole.fields()[at];
        fields[i] = given == null && narrowable.contains(own.name()) ? narrowed(fields[i], own) : own;
      }
    }
    return new StructType(fields);
  }

  private static StructField narrowed(StructField needed, StructField whole) {
    if (!(needed.dataType() instanceof StructType some) || !(whole.dataType() instanceof StructType all)) {
      return whole;
    }
    StructField[] members = some.fields().clone();
    for (int i = 0; i < members.length; i++) {
      members[i] = narrowed(members[i], all.fields()[position(all, members[i].name())]);
    }
    return new StructField(whole.name(), new StructType(members), whole.nullable(), whole.metadata());
  }

  private static int position(StructType struct, String name) {
    return Arrays.asList(struct.fieldNames()).indexOf(name);
  }

  private static String setting(String name) {
    return SparkSession.active().conf().get(name, DEFAULT_REDACTION);
  }

  /** A request about the version. */
  ObjectNode request(String operation) {
    ObjectNode request = options.request(operation).put("pinned", opened().get("pinned").asText());
    return opened().path("adds_columns").asBoolean() ? request.put("adds_columns", true) : request;
  }

  /** Opens it as an answer of Python describes it. */
  final synchronized void open(JsonNode answer) {
    opened = answer;
    own = (StructType) DataType.fromJson(answer.get("schema").asText());
  }

  long number() {
    return opened().get("version").asLong();
  }

  /** Whether the manifest has the number of rows: not where an option of the read filters them. */
  boolean knowsItsCount() {
    return opened().get("is_counted").asBoolean();
  }

  boolean hasIndices() {
    return opened().get("has_indices").asBoolean();
  }

  boolean hasColumn(String name) {
    return position(schema(), name) >= 0;
  }

  /** The type of a column, or of a member of structs; null if there is none. */
  DataType typeOf(String[] path) {
    DataType type = schema();
    for (String name : path) {
      if (!(type instanceof StructType struct) || position(struct, name) < 0) {
        return null;
      }
      type = struct.fields()[position(struct, name)].dataType();
    }
    return type;
  }

  /** The same version, read with options of one query besides its own. They change no column. */
  private LanceTable with(Map<String, String> own) {
    TableOptions all = options.with(own);
    if (all.equals(options)) {
      return this;
    }
    ObjectNode request = all.request("query");
    ObjectNode texts = request.putObject("own");
    TableOptions.ofQuery(own).forEach(texts::put);
    JsonNode answer = Worker.ask(options.python(), request);
    LanceTable table = new LanceTable(all, given, moment, shown);
    table.opened = ((ObjectNode) opened()).deepCopy().setAll((ObjectNode) answer);
    table.own = this.own;
    return table;
  }

  @Override
  public String name() {
    if (shown != null) {
      return shown;
    }
    return opened == null ? PythonSource.NAME : opened.get("name").asText();
  }

  @Override
  public StructType schema() {
    if (given != null) {
      return given;
    }
    opened();
    return own;
  }

  @Override
  public Map<String, String> properties() {
    if (opened == null) {
      return Map.of("provider", PythonSource.NAME);
    }
    return Map.of(
        "provider", PythonSource.NAME, "location", opened.get("name").asText(), "version", Long.toString(number()));
  }

  @Override
  public Set<TableCapability> capabilities() {
    return EnumSet.of(
        TableCapability.BATCH_READ,
        TableCapability.BATCH_WRITE,
        TableCapability.MICRO_BATCH_READ,
        TableCapability.STREAMING_WRITE,
        TableCapability.TRUNCATE);
  }

  @Override
  public MetadataColumn[] metadataColumns() {
    if (given != null) {
      return new MetadataColumn[0]; // the caller chose the columns
    }
    JsonNode names = opened().get("metadata_columns");
    MetadataColumn[] columns = new MetadataColumn[names.size()];
    for (int i = 0; i < columns.length; i++) {
      columns[i] = new SystemColumn(names.get(i).asText());
    }
    return columns;
  }

  @Override
  public LanceScanBuilder newScanBuilder(CaseInsensitiveStringMap own) {
    return LanceScanBuilder.of(with(own.asCaseSensitiveMap()));
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    return PythonSource.writeBuilder(info, options);
  }

  /**
   * By value, so that Spark reads a table that a query names twice only once where it can.
   *
   * <p>The table of a streaming write has options that no read has, and is not opened: Spark 4.1 compares it with itself.
   */
  @Override
  public boolean equals(Object other) {
    return other == this
        || (other instanceof LanceTable that
            && that.options.equals(options)
            && that.schema().equals(schema())
            && that.opened().get("id").equals(opened().get("id")));
  }

  @Override
  public int hashCode() {
    return options.hashCode();
  }

  /** A column that queries may name, and that `*` does not show. */
  private record SystemColumn(String name) implements MetadataColumn {
    @Override
    public DataType dataType() {
      return DataTypes.LongType;
    }

    @Override
    public boolean isNullable() {
      return false;
    }
  }
}
