package lance_io.spark;

import org.apache.spark.SparkEnv;
import org.apache.spark.sql.SparkSession;

/** Which Python the workers run. The driver chooses, and its tasks carry the choice. */
final class PythonChoice {
  /** Set by `configure` and `enable`: the Python of the program, which exists on the driver's machine. */
  private static final String OF_PROGRAM = "spark.lance_io.python.ofProgram";

  private PythonChoice() {}

  /** The Python of a read, given the option of its catalog or load. */
  static String of(String option) {
    boolean isLocal = SparkEnv.get().conf().get("spark.master", "").startsWith("local"); // also local-cluster
    return first(
        option,
        SparkEnv.get().conf().get("spark.pyspark.python", ""),
        System.getenv("PYSPARK_PYTHON"),
        isLocal ? SparkSession.active().conf().get(OF_PROGRAM, "") : "");
  }

  /** The first that is given, in the order of their names: the option, else what Spark's own workers run, else python3. */
  static String first(String option, String configured, String environment, String program) {
    for (String python : new String[] {option, configured, environment, program}) {
      if (isGiven(python)) {
        return python;
      }
    }
    return "python3";
  }

  private static boolean isGiven(String text) {
    return text != null && !text.isBlank();
  }
}
