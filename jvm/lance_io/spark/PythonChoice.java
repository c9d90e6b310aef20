package lance_io.spark;

import org.apache.spark.SparkEnv;
import org.apache.spark.sql.SparkSession;

/** Which Python the workers run. The driver chooses, and its tasks carry the choice. */
final class PythonChoice {
  /** Set by `configure` and `enable`: the Python of the program, which exists on the driver's machine. */
  private static final String OF_PROGRAM = "spark.lance_io.python.ofProgram";

  private PythonChoice() {}

  /** The option of a catalog or read, else what Spark's own Python workers run, else python3. */
  static String of(String option) {
    if (isGiven(option)) {
      return option;
    }
    String configured = SparkEnv.get().conf().get("spark.pyspark.python", "");
    if (isGiven(configured)) {
      return configured;
    }
    String environment = System.getenv("PYSPARK_PYTHON");
    if (isGiven(environment)) {
      return environment;
    }
    String program = SparkSession.active().conf().get(OF_PROGRAM, "");
    boolean isLocal = SparkEnv.get().conf().get("spark.master", "").startsWith("local"); // also local-cluster
    return isLocal && isGiven(program) ? program : "python3";
  }

  private static boolean isGiven(String text) {
    return text != null && !text.isBlank();
  }
}
