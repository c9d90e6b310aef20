package lance_io.spark.later;

import java.util.Map;
import java.util.function.Function;
import org.apache.spark.sql.connector.write.DeleteSummary;
import org.apache.spark.sql.connector.write.InsertSummary;
import org.apache.spark.sql.connector.write.UpdateSummary;
import org.apache.spark.sql.connector.write.WriteSummary;

/** Counts of the summaries that Spark has from 4.2 on; loaded by its name there, and nowhere else. */
public final class LaterSummaries implements Function<WriteSummary, Map<String, Long>> {
  @Override
  public Map<String, Long> apply(WriteSummary summary) {
    if (summary instanceof DeleteSummary delete) {
      return Map.of("rows_found_deleted", delete.numDeletedRows());
    }
    if (summary instanceof UpdateSummary update) {
      return Map.of("rows_found_updated", update.numUpdatedRows());
    }
    if (summary instanceof InsertSummary insert) {
      return Map.of("rows_given", insert.numInsertedRows());
    }
    return null;
  }
}
