package lance_io.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The options of a read, among them the path. Python checks them; only the option `python` is for this side. */
final class TableOptions {
  private static final String PYTHON = "python";

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

  String python() {
    return python;
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
