package lance_io.spark;

import org.apache.spark.QueryContext;
import org.apache.spark.sql.AnalysisException;
import scala.Option;
import scala.collection.immutable.Map$;

/** Spark's exception for statements that cannot be run, which Java takes for a checked one. */
final class Refusals {
  private Refusals() {}

  /** To be thrown: an `AnalysisException`. */
  static RuntimeException analysis(String message, Throwable cause) {
    return unchecked(
        new AnalysisException(
            message,
            Option.empty(),
            Option.empty(),
            Option.apply(cause),
            Option.empty(),
            Map$.MODULE$.<String, String>empty(),
            new QueryContext[0]));
  }

  static RuntimeException analysis(String message) {
    return analysis(message, null);
  }

  private static RuntimeException unchecked(Throwable error) {
    return Refusals.<RuntimeException>raise(error);
  }

  @SuppressWarnings("unchecked") // the cast is to a type that is gone at run time: the exception itself is thrown
  private static <E extends Throwable> RuntimeException raise(Throwable error) throws E {
    throw (E) error;
  }
}
