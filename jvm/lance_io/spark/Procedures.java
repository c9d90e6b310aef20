package lance_io.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.api.java.function.Function;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.procedures.BoundProcedure;
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/** The procedures of a catalog: each plans on the driver, runs as a Spark job, and commits once. */
final class Procedures {
  static final String NAMESPACE = "system";

  private static final DataType TEXT = DataTypes.StringType;
  private static final DataType NUMBER = DataTypes.LongType;
  private static final DataType SWITCH = DataTypes.BooleanType;
  private static final DataType DAYS = DataTypes.DoubleType;
  private static final DataType TEXTS = DataTypes.createMapType(TEXT, TEXT);

  private static final String DESCRIPTION = "spark.job.description"; // of `SparkContext`, which keeps its name private

  private static final Map<String, Definition> ALL = new LinkedHashMap<>();

  static {
    define(
        "compact",
        "rewrites small fragments, and those with deleted rows, into larger ones",
        optional("target_rows_per_fragment", NUMBER, "rows of a full fragment"),
        optional("max_bytes_per_file", NUMBER, "bytes of a full file"),
        optional("materialize_deletions", SWITCH, "whether fragments with deleted rows are rewritten"),
        optional("num_threads", NUMBER, "accepted, as by the Python API"));
    define(
        "cleanup",
        "removes old versions, and files that no version refers to; tagged versions stay",
        optional("older_than_days", DAYS, "least age of the versions, by default two weeks"),
        optional("retain_versions", NUMBER, "newest versions that stay"),
        optional("delete_unverified", SWITCH, "also files of unknown writers that are younger than seven days"));
    define(
        "create_index",
        "builds an index",
        required("column", TEXT, "the column"),
        required("index_type", TEXT, "BTREE, BITMAP, INVERTED, IVF_PQ and others"),
        optional("name", TEXT, "its name"),
        optional("replace", SWITCH, "whether it replaces one of this name, by default true"),
        optional("options", TEXTS, "parameters of the kind, such as map('num_partitions', '16')"),
        optional("num_segments", NUMBER, "segments of the index, each built by a task"));
    define("drop_index", "removes an index", required("name", TEXT, "its name"));
    define(
        "optimize_indices",
        "adds new rows to indices",
        optional("name", TEXT, "the index, by default all"),
        optional("num_indices_to_merge", NUMBER, "segments that become one with the new rows, by default 1"),
        optional("retrain", SWITCH, "whether all segments are built again"),
        optional("memory_limit", NUMBER, "MiB of rows that a task holds in memory"),
        optional("num_segments", NUMBER, "segments that are built, each by a task"));
    define(
        "add_columns",
        "adds columns that expressions compute, in the language of filters",
        optional("columns", TEXTS, "expressions by name, such as map('total', 'price * amount')"),
        optional("function", TEXT, "of lance_io.spark.ops.add_columns"));
    define("rollback", "makes an old version the newest", required("version", NUMBER, "its number"));
    define("create_tag", "names a version", required("tag", TEXT, "the name"), version());
    define("drop_tag", "removes a tag", required("tag", TEXT, "the name"));
    define("create_branch", "starts a branch at a version", required("branch", TEXT, "the name"), version());
    define("drop_branch", "removes a branch", required("branch", TEXT, "the name"));
  }

  private Procedures() {}

  private static void define(String name, String description, ProcedureParameter... own) {
    List<ProcedureParameter> parameters = new ArrayList<>();
    parameters.add(required("table", TEXT, "the table's name in the catalog"));
    parameters.addAll(Arrays.asList(own));
    String names = parameters.stream().map(ProcedureParameter::name).collect(Collectors.joining(", "));
    String shown = description + "; parameters: " + names; // Spark shows nothing else
    ALL.put(name, new Definition(name, shown, parameters.toArray(new ProcedureParameter[0])));
  }

  private static ProcedureParameter required(String name, DataType type, String comment) {
    return ProcedureParameter.in(name, type).comment(comment).build();
  }

  private static ProcedureParameter optional(String name, DataType type, String comment) {
    return ProcedureParameter.in(name, type).defaultValue("NULL").comment(comment).build();
  }

  private static ProcedureParameter version() {
    return optional("version", NUMBER, "its number, by default the newest");
  }

  private record Definition(String name, String description, ProcedureParameter[] parameters) {}

  /** Where the tables of a catalog are. */
  interface Tables {
    TableOptions options(String table);
  }

  static Identifier[] identifiers() {
    return ALL.keySet().stream()
        .map(name -> Identifier.of(new String[] {NAMESPACE}, name))
        .toArray(Identifier[]::new);
  }

  static UnboundProcedure load(Identifier procedure, Tables tables) {
    Definition definition = ALL.get(procedure.name());
    if (definition == null || !Arrays.equals(procedure.namespace(), new String[] {NAMESPACE})) {
      throw Refusals.analysis(
          "there is no procedure " + procedure + "; there are system." + String.join(", system.", ALL.keySet()));
    }
    return new Unbound(definition, tables);
  }

  private record Unbound(Definition definition, Tables tables) implements UnboundProcedure {
    @Override
    public String name() {
      return definition.name();
    }

    @Override
    public String description() {
      return definition.description();
    }

    @Override
    public BoundProcedure bind(StructType given) {
      return new Bound(definition, tables);
    }
  }

  private record Bound(Definition definition, Tables tables) implements BoundProcedure {
    @Override
    public String name() {
      return definition.name();
    }

    @Override
    public String description() {
      return definition.description();
    }

    @Override
    public ProcedureParameter[] parameters() {
      return definition.parameters().clone();
    }

    @Override
    public boolean isDeterministic() {
      return false;
    }

    @Override
    public Iterator<Scan> call(InternalRow given) {
      if (given.isNullAt(0)) {
        throw new IllegalArgumentException("table: expected a name, found NULL");
      }
      TableOptions options = tables.options(given.getUTF8String(0).toString());
      ObjectNode arguments = Worker.JSON.createObjectNode();
      for (int i = 1; i < definition.parameters().length; i++) {
        put(arguments, definition.parameters()[i], given, i);
      }
      JsonNode answer = Worker.JSON.createObjectNode().put("again", true);
      for (int attempt = 0; answer.path("again").asBoolean(); attempt++) {
        answer = attempt(options, arguments, attempt);
      }
      return Collections.<Scan>singletonList(Answer.of(answer)).iterator();
    }

    /** Plans, runs the tasks and commits; answers `again` after a conflict that another attempt may solve. */
    private JsonNode attempt(TableOptions options, ObjectNode arguments, int attempt) {
      JavaSparkContext context = JavaSparkContext.fromSparkContext(SparkSession.active().sparkContext());
      ObjectNode begin = request("call", options, arguments).put("cores", context.defaultParallelism());
      JsonNode planned = Changes.plan(options.python(), begin);
      String job = planned.path("job").asText(null);
      List<String> tasks = new ArrayList<>();
      planned.get("tasks").forEach(task -> tasks.add(task.asText()));
      ObjectNode end = request("call_end", options, arguments).put("job", job).put("attempt", attempt);
      ArrayNode results = end.putArray("results");
      try {
        run(context, tasks, options, job).forEach(results::add);
      } catch (Throwable e) { // Spark's exceptions are checked ones that no method declares
        abort(options, job, e);
        throw e;
      }
      return Changes.make(options.python(), end);
    }

    private ObjectNode request(String operation, TableOptions options, ObjectNode arguments) {
      ObjectNode request = options.request(operation).put("procedure", definition.name());
      request.set("arguments", arguments);
      return request;
    }

    private List<String> run(JavaSparkContext context, List<String> tasks, TableOptions options, String job) {
      if (tasks.isEmpty()) {
        return tasks;
      }
      String request = options.request("call_task").put("job", job).toString();
      String before = context.getLocalProperty(DESCRIPTION);
      context.sc().setJobDescription("lance_io " + definition.name());
      try {
        return context.parallelize(tasks, tasks.size()).map(new Task(options.python(), request)).collect();
      } finally {
        context.sc().setJobDescription(before);
      }
    }

    private static void abort(TableOptions options, String job, Throwable cause) {
      try {
        Worker.ask(options.python(), options.request("call_abort").put("job", job));
      } catch (RuntimeException e) {
        cause.addSuppressed(e); // a cleanup removes the files
      }
    }
  }

  private static void put(ObjectNode arguments, ProcedureParameter parameter, InternalRow given, int at) {
    String name = parameter.name();
    if (given.isNullAt(at)) {
      arguments.putNull(name);
    } else if (parameter.dataType().equals(TEXT)) {
      arguments.put(name, given.getUTF8String(at).toString());
    } else if (parameter.dataType().equals(SWITCH)) {
      arguments.put(name, given.getBoolean(at));
    } else if (parameter.dataType().equals(DAYS)) {
      arguments.put(name, given.getDouble(at));
    } else if (parameter.dataType().equals(TEXTS)) {
      MapData map = given.getMap(at);
      ObjectNode texts = arguments.putObject(name);
      for (int i = 0; i < map.numElements(); i++) {
        texts.put(map.keyArray().getUTF8String(i).toString(), map.valueArray().getUTF8String(i).toString());
      }
    } else {
      arguments.put(name, given.getLong(at));
    }
  }

  /**
   * One task, on an executor.
   *
   * @param python which Python runs it
   * @param request about the table and the job, as JSON
   */
  private record Task(String python, String request) implements Function<String, String> {
    @Override
    public String call(String task) throws Exception {
      ObjectNode asked = (ObjectNode) Worker.JSON.readTree(request);
      try (Call call = Worker.open(python, asked.put("task", task))) {
        TaskWatch.add(call);
        try {
          return call.answer().get("result").asText();
        } finally {
          TaskWatch.remove(call);
        }
      }
    }
  }

  /**
   * The row that a caller gets.
   *
   * @param readSchema its columns
   * @param rows it alone
   */
  private record Answer(StructType readSchema, InternalRow[] rows) implements LocalScan {
    static Answer of(JsonNode answer) {
      JsonNode names = answer.get("names");
      StructType schema = new StructType();
      Object[] values = new Object[names.size()];
      for (int i = 0; i < values.length; i++) {
        JsonNode value = answer.get("values").get(i);
        boolean isText = value.isTextual();
        schema = schema.add(names.get(i).asText(), isText ? TEXT : NUMBER);
        values[i] = isText ? UTF8String.fromString(value.asText()) : (Object) value.asLong();
      }
      return new Answer(schema, new InternalRow[] {new GenericInternalRow(values)});
    }
  }
}
