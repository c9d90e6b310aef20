package lance_io.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Map;
import java.util.function.Function;
import org.apache.spark.sql.connector.write.MergeSummary;
import org.apache.spark.sql.connector.write.WriteSummary;

/** Spark's own count of what a statement did: of MERGE from 4.1 on, of others from 4.2 on. */
final class Summaries {
  private static final String LATER = "lance_io.spark.later.LaterSummaries"; // compiled against 4.2

  private Summaries() {}

  /** The counts by name; null for a summary of a kind that is not known. */
  static ObjectNode json(WriteSummary summary) {
    Map<String, Long> counts = summary instanceof MergeSummary merge ? counts(merge) : later(summary);
    if (counts == null) {
      return null;
    }
    ObjectNode json = Worker.JSON.createObjectNode();
    counts.forEach((name, count) -> {
      if (count >= 0) { // Spark counts as -1 what it does not know
        json.put(name, count);
      }
    });
    return json;
  }

  private static Map<String, Long> counts(MergeSummary merge) {
    return Map.of(
        "rows_matched_updated", merge.numTargetRowsMatchedUpdated(),
        "rows_matched_deleted", merge.numTargetRowsMatchedDeleted(),
        "rows_not_matched_inserted", merge.numTargetRowsInserted(),
        "rows_not_matched_by_source_updated", merge.numTargetRowsNotMatchedBySourceUpdated(),
        "rows_not_matched_by_source_deleted", merge.numTargetRowsNotMatchedBySourceDeleted());
  }

  @SuppressWarnings("unchecked") // the class is of this JAR
  private static Map<String, Long> later(WriteSummary summary) {
    if (summary == null || !Release.isAtLeast(4, 2)) {
      return null;
    }
    try {
      Object counts = Class.forName(LATER).getDeclaredConstructor().newInstance();
      return ((Function<WriteSummary, Map<String, Long>>) counts).apply(summary);
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException("the JAR of lance_io is damaged: it has no " + LATER, e);
    }
  }
}
