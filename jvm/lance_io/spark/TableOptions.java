package lance_io.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The options of a read, among them the path. Python checks them; only the option `python` is for this side. */
final class TableOptions {
  private static final String PYTHON = "python";
  private static final Set<String> OF_SPARK = Set.of("versionasof", "timestampasof", "path", PYTHON);

  private final Map<String, String> texts = new TreeMap<>();
  private final String python;

  TableOptions(Map<String, String> given) {
    String option = null;
    for (Map.Entry<String, String> entry : given.entrySet()) {
      if (entry.getKey().equalsIgnoreCase(PYTHON)) {
        option = entry.getValue();
      } else {
        texts.put(entry.getKey(), entry.getValue());
      }
    }
    python = PythonChoice.of(option);
  }

  private TableOptions(Map<String, String> texts, String python) {
    this.texts.putAll(texts);
    this.python = python;
  }

  /** These options and those of one query, which go first. */
  TableOptions with(Map<String, String> own) {
    Map<String, String> all = new TreeMap<>(texts);
    ofQuery(own)
        .forEach(
            (name, text) -> {
              all.keySet().removeIf(known -> squeezed(known).equals(squeezed(name)));
              all.put(name, text);
            });
    return new TableOptions(all, python);
  }

  /** The options of a query that a read has: Spark has taken the version, and one Python serves a JVM. */
  static Map<String, String> ofQuery(Map<String, String> own) {
    Map<String, String> left = new TreeMap<>(own);
    left.keySet().removeIf(name -> OF_SPARK.contains(squeezed(name)));
    return left;
  }

  /** Whether there is an option of this name, however it is written. */
  static boolean has(Map<String, String> given, String name) {
    return given.keySet().stream().anyMatch(known -> squeezed(known).equals(squeezed(name)));
  }

  private static String squeezed(String name) {
    return name.replace("_", "").toLowerCase(Locale.ROOT);
  }

  /** Whether an option is given, by its name without `_`. */
  boolean has(String name) {
    return texts.keySet().stream().anyMatch(known -> squeezed(known).equals(name));
  }

  String python() {
    return python;
  }

  Map<String, String> texts() {
    return new TreeMap<>(texts);
  }

  /** The options for Spark's own classes. */
  CaseInsensitiveStringMap forSpark() {
    return new CaseInsensitiveStringMap(new HashMap<>(texts));
  }

  /** A request about the table. */
  ObjectNode request(String operation) {
    ObjectNode request = Worker.request(operation);
    ObjectNode options = request.putObject("options");
    texts.forEach(options::put);
    return request;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof TableOptions that && that.texts.equals(texts) && that.python.equals(python);
  }

  @Override
  public int hashCode() {
    return texts.hashCode();
  }
}
