package lance_io.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsDeleteV2;
import org.apache.spark.sql.connector.catalog.SupportsRowLevelOperations;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.expressions.filter.AlwaysTrue;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperationBuilder;
import org.apache.spark.sql.connector.write.RowLevelOperationInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;

/** A table of a catalog, which SQL also changes. */
final class CatalogTable extends LanceTable implements SupportsRowLevelOperations, SupportsDeleteV2 {
  CatalogTable(TableOptions options, Moment moment, String shown) {
    super(options, null, moment, shown);
  }

  @Override
  public Set<TableCapability> capabilities() {
    Set<TableCapability> all =
        EnumSet.of(
            TableCapability.OVERWRITE_BY_FILTER,
            TableCapability.OVERWRITE_DYNAMIC,
            TableCapability.AUTOMATIC_SCHEMA_EVOLUTION); // Spark alters the table first
    all.addAll(super.capabilities());
    return all;
  }

  @Override
  public Map<String, String> properties() {
    Map<String, String> all = new HashMap<>();
    opened().get("config").properties().forEach(entry -> all.put(entry.getKey(), entry.getValue().asText()));
    all.putAll(super.properties());
    return all;
  }

  boolean hasStableRowIds() {
    return opened().get("stable_row_ids").asBoolean();
  }

  @Override
  public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
    return new TableWrite.Builder(this, info);
  }

  @Override
  public RowLevelOperationBuilder newRowLevelOperationBuilder(RowLevelOperationInfo info) {
    return () -> new RowChange(this, info);
  }

  // -- rows that a condition selects ------------------------------------------------------------------------------------

  /** Whether all predicates are computed exactly as Spark does. */
  boolean computes(Predicate[] predicates) {
    if (areTrue(predicates)) {
      return true;
    }
    JsonNode answer =
        Worker.ask(options().python(), request("filter").set("predicates", Predicates.json(predicates)));
    for (JsonNode use : answer.get("uses")) {
      if (!use.asText().equals("exact")) {
        return false;
      }
    }
    return true;
  }

  private static boolean areTrue(Predicate[] predicates) {
    for (Predicate predicate : predicates) {
      if (!(predicate instanceof AlwaysTrue)) {
        return false;
      }
    }
    return true;
  }

  @Override
  public boolean canDeleteWhere(Predicate[] predicates) {
    return computes(predicates);
  }

  /** Writes deletion files only: the worker of the driver finds the rows. */
  @Override
  public void deleteWhere(Predicate[] predicates) {
    if (areTrue(predicates)) {
      truncateTable();
      return;
    }
    Changes.make(options().python(), request("delete").set("predicates", Predicates.json(predicates)));
  }

  @Override
  public boolean truncateTable() {
    Changes.make(options().python(), options().request("truncate"));
    return true;
  }
}
