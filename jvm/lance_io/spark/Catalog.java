package lance_io.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.ProcedureCatalog;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A catalog of the tables in a folder: `spark.sql.catalog.lance=lance_io.spark.Catalog`, and the folder in
 * `spark.sql.catalog.lance.path`. The table `t` is the folder `t.lance` in it; a name with a slash is the path of a table
 * elsewhere.
 *
 * <p>It has one namespace, `default`, which names need not say.
 */
public final class Catalog implements StagingTableCatalog, SupportsNamespaces, ProcedureCatalog {
  private static final String DEFAULT = "default";
  private static final String PATH = "path";

  private final Evolution evolution = new Evolution();
  private String name;
  private Map<String, String> given; // the options of the catalog, but for the path
  private String path;

  @Override
  public void initialize(String name, CaseInsensitiveStringMap options) {
    Release.check();
    this.name = name;
    path = options.get(PATH);
    if (path == null || path.isBlank()) {
      throw new IllegalArgumentException(
          "the catalog " + name + " has no folder of tables: set spark.sql.catalog." + name + ".path");
    }
    given = new HashMap<>(options.asCaseSensitiveMap());
    given.keySet().removeIf(PATH::equalsIgnoreCase);
    // Credentials that `enable` keeps out of the settings of a session, which Spark writes to its event logs.
    if (System.getProperties().get("lance_io.catalog." + name) instanceof Map<?, ?> hidden) {
      hidden.forEach((option, text) -> given.put(option.toString(), text.toString()));
    }
  }

  @Override
  public String name() {
    return name;
  }

  private TableOptions options(String path) {
    Map<String, String> all = new HashMap<>(given);
    all.put(PATH, path);
    return new TableOptions(all);
  }

  // -- tables -----------------------------------------------------------------------------------------------------------

  @Override
  public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
    check(namespace);
    TableOptions options = options(path);
    List<Identifier> tables = new ArrayList<>();
    for (JsonNode table : Worker.ask(options.python(), options.request("list")).get("names")) {
      tables.add(Identifier.of(new String[] {DEFAULT}, table.asText()));
    }
    return tables.toArray(new Identifier[0]);
  }

  @Override
  public Table loadTable(Identifier table) throws NoSuchTableException {
    return load(table, Moment.NEWEST);
  }

  /** The version of a number, a tag or a branch. */
  @Override
  public Table loadTable(Identifier table, String version) throws NoSuchTableException {
    return load(table, new Moment(version, null));
  }

  /** The version that was the newest at a time, in microseconds. */
  @Override
  public Table loadTable(Identifier table, long timestamp) throws NoSuchTableException {
    return load(table, new Moment(null, timestamp));
  }

  private Table load(Identifier table, Moment moment) throws NoSuchTableException {
    Table evolved = evolution.take(table);
    if (evolved != null) {
      return evolved;
    }
    String[] namespace = table.namespace();
    int depth = namespace.length;
    try {
      if (depth > 0 && !isDefault(namespace) && isDefault(Arrays.copyOf(namespace, depth - 1))) {
        if (MetadataTable.NAMES.contains(table.name())) {
          String of = namespace[depth - 1];
          return MetadataTable.load(options(uri(of)), moment, table.name(), name + "." + of + "." + table.name());
        }
      } else if (isDefault(namespace)) {
        LanceTable loaded = new CatalogTable(options(uri(table.name())), moment, shown(table.name()));
        loaded.schema(); // opens it
        return loaded;
      }
    } catch (MissingTableException e) {
      // Spark says that there is none.
    }
    throw new NoSuchTableException(table);
  }

  /** The name of a table in plans; null for the path of one elsewhere. */
  private String shown(String table) {
    return table.contains("/") ? null : name + "." + table;
  }

  private String uri(String table) {
    return table.contains("/") ? table : path.replaceFirst("/+$", "") + "/" + table + ".lance";
  }

  @Override
  @SuppressWarnings("deprecation") // Spark calls another one now, which asks this one; 4.1 knows no other
  public Table createTable(Identifier table, Column[] columns, Transform[] partitions, Map<String, String> properties)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    check(table.namespace());
    checkUnpartitioned(partitions);
    TableOptions options = options(uri(table.name()));
    ObjectNode request = options.request("create").put("schema", TableChanges.struct(columns).json());
    Changes.put(request, "properties", properties);
    try {
      Changes.make(options.python(), request);
      return loadTable(table);
    } catch (TableExistsException e) {
      throw new TableAlreadyExistsException(table);
    } catch (NoSuchTableException e) {
      throw new IllegalStateException("the table was dropped as soon as it was created", e);
    }
  }

  private static void checkUnpartitioned(Transform[] partitions) {
    if (partitions.length > 0) {
      throw Refusals.analysis(
          "PARTITIONED BY and CLUSTER BY: tables have no partitions. For loads that replace the rows of a day, set the"
              + " property lance.overwrite.columns and overwrite dynamically");
    }
  }

  @Override
  public Table alterTable(Identifier table, TableChange... changes) throws NoSuchTableException {
    TableOptions options = optionsOf(table);
    if (Evolution.isRunning()) {
      CatalogTable evolved = new CatalogTable(options, Moment.NEWEST, shown(table.name()));
      evolved.open(Changes.plan(options.python(), options.request("evolve").set("changes", TableChanges.json(changes))));
      evolution.put(table, evolved);
      return evolved;
    }
    try {
      Changes.make(options.python(), options.request("alter").set("changes", TableChanges.json(changes)));
    } catch (MissingTableException e) {
      throw new NoSuchTableException(table);
    }
    return loadTable(table);
  }

  @Override
  public boolean dropTable(Identifier table) {
    if (!isDefault(table.namespace())) {
      return false;
    }
    TableOptions options = options(uri(table.name()));
    return Changes.make(options.python(), options.request("drop")).get("done").asBoolean();
  }

  /** A drop removes all files in any case. */
  @Override
  public boolean purgeTable(Identifier table) {
    return dropTable(table);
  }

  @Override
  public void renameTable(Identifier from, Identifier to) throws NoSuchTableException, TableAlreadyExistsException {
    TableOptions options = optionsOf(from);
    boolean saysCatalog = to.namespace().length > 0 && to.namespace()[0].equals(name); // Spark leaves it there
    if (!isDefault(saysCatalog ? Arrays.copyOfRange(to.namespace(), 1, to.namespace().length) : to.namespace())) {
      throw Refusals.analysis("the catalog " + name + " is one folder, and has no other namespaces");
    }
    try {
      Changes.make(options.python(), options.request("rename").put("to", uri(to.name())));
    } catch (MissingTableException e) {
      throw new NoSuchTableException(from);
    } catch (TableExistsException e) {
      throw new TableAlreadyExistsException(to);
    }
  }

  private TableOptions optionsOf(Identifier table) throws NoSuchTableException {
    if (!isDefault(table.namespace())) {
      throw new NoSuchTableException(table);
    }
    return options(uri(table.name()));
  }

  // -- tables that a query makes ----------------------------------------------------------------------------------------

  @Override
  @SuppressWarnings("deprecation") // as createTable
  public StagedTable stageCreate(
      Identifier table, Column[] columns, Transform[] partitions, Map<String, String> properties)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    check(table.namespace());
    try {
      return stage(table, columns, partitions, properties, "create");
    } catch (TableExistsException e) {
      throw new TableAlreadyExistsException(table);
    }
  }

  @Override
  @SuppressWarnings("deprecation") // as createTable
  public StagedTable stageReplace(
      Identifier table, Column[] columns, Transform[] partitions, Map<String, String> properties)
      throws NoSuchNamespaceException, NoSuchTableException {
    check(table.namespace());
    try {
      return stage(table, columns, partitions, properties, "replace");
    } catch (MissingTableException e) {
      throw new NoSuchTableException(table);
    }
  }

  @Override
  @SuppressWarnings("deprecation") // as createTable
  public StagedTable stageCreateOrReplace(
      Identifier table, Column[] columns, Transform[] partitions, Map<String, String> properties)
      throws NoSuchNamespaceException {
    check(table.namespace());
    return stage(table, columns, partitions, properties, "create_or_replace");
  }

  @Override
  public CustomMetric[] supportedCustomMetrics() {
    return WriteMetrics.supported();
  }

  private StagedTable stage(
      Identifier table, Column[] columns, Transform[] partitions, Map<String, String> properties, String mode) {
    checkUnpartitioned(partitions);
    StructType schema = TableChanges.struct(columns);
    return new StagedWrite(options(uri(table.name())), name + "." + table.name(), schema, properties, mode);
  }

  // -- procedures -------------------------------------------------------------------------------------------------------

  @Override
  public UnboundProcedure loadProcedure(Identifier procedure) {
    return Procedures.load(procedure, this::optionsOf);
  }

  @Override
  public Identifier[] listProcedures(String[] namespace) {
    boolean isTheirs = namespace.length == 0 || Arrays.equals(namespace, new String[] {Procedures.NAMESPACE});
    return isTheirs ? Procedures.identifiers() : new Identifier[0];
  }

  /** A table that a procedure names, with or without its namespace. */
  private TableOptions optionsOf(String table) {
    return options(uri(table.contains("/") ? table : table.replaceFirst("^" + DEFAULT + "\\.", "")));
  }

  // -- the namespace ----------------------------------------------------------------------------------------------------

  private static boolean isDefault(String[] namespace) {
    return namespace.length == 0 || (namespace.length == 1 && namespace[0].equals(DEFAULT));
  }

  private static void check(String[] namespace) throws NoSuchNamespaceException {
    if (!isDefault(namespace)) {
      throw new NoSuchNamespaceException(namespace);
    }
  }

  @Override
  public String[] defaultNamespace() {
    return new String[] {DEFAULT};
  }

  @Override
  public String[][] listNamespaces() {
    return new String[][] {{DEFAULT}};
  }

  @Override
  public String[][] listNamespaces(String[] namespace) throws NoSuchNamespaceException {
    check(namespace);
    return namespace.length == 0 ? listNamespaces() : new String[0][];
  }

  @Override
  public Map<String, String> loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
    check(namespace);
    return Map.of();
  }

  @Override
  public void createNamespace(String[] namespace, Map<String, String> metadata) {
    throw new UnsupportedOperationException("the catalog " + name + " is one folder, and has no other namespaces");
  }

  @Override
  public void alterNamespace(String[] namespace, NamespaceChange... changes) {
    throw new UnsupportedOperationException("the namespace of the catalog " + name + " has no properties");
  }

  @Override
  public boolean dropNamespace(String[] namespace, boolean cascade) {
    throw new UnsupportedOperationException("the catalog " + name + " is one folder, and has no other namespaces");
  }
}
