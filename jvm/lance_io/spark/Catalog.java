package lance_io.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.NamespaceAlreadyExistsException;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.NonEmptyNamespaceException;
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
 * elsewhere. Namespaces are folders in it; `default` is the folder itself.
 */
public final class Catalog implements StagingTableCatalog, SupportsNamespaces, ProcedureCatalog {
  private static final String PATH = "path";

  private final Evolution evolution = new Evolution();
  private String name;
  private Map<String, String> given; // the options of the catalog, but for the path
  private Namespaces namespaces;

  @Override
  public void initialize(String name, CaseInsensitiveStringMap options) {
    Release.check();
    this.name = name;
    String path = options.get(PATH);
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
    namespaces = new Namespaces(name, path, this::options);
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
    return namespaces.tables(namespace);
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
    String uri = namespaces.uri(table);
    if (uri != null) {
      try {
        LanceTable loaded = new CatalogTable(options(uri), moment, namespaces.shown(table));
        loaded.schema(); // opens it
        return loaded;
      } catch (MissingTableException e) {
        // It may be a table about a table.
      }
    }
    Identifier of = Namespaces.described(table);
    String described = of == null ? null : namespaces.uri(of);
    if (described != null) {
      try {
        String shown = namespaces.named(of) + "." + table.name();
        return MetadataTable.load(options(described), moment, table.name(), shown);
      } catch (MissingTableException e) {
        // Spark says that there is none.
      }
    }
    throw new NoSuchTableException(table);
  }

  @Override
  @SuppressWarnings("deprecation") // Spark calls another one now, which asks this one; 4.1 knows no other
  public Table createTable(Identifier table, Column[] columns, Transform[] partitions, Map<String, String> properties)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
    checkUnpartitioned(partitions);
    TableOptions options = options(namespaces.newUri(table));
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
      CatalogTable evolved = new CatalogTable(options, Moment.NEWEST, namespaces.shown(table));
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
    String uri = namespaces.uri(table);
    if (uri == null) {
      return false;
    }
    TableOptions options = options(uri);
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
    String uri;
    try {
      uri = namespaces.newUri(namespaces.withoutCatalog(to));
    } catch (NoSuchNamespaceException e) {
      throw Refusals.analysis(e.getMessage(), e);
    }
    try {
      Changes.make(options.python(), options.request("rename").put("to", uri));
    } catch (MissingTableException e) {
      throw new NoSuchTableException(from);
    } catch (TableExistsException e) {
      throw new TableAlreadyExistsException(to);
    }
  }

  private TableOptions optionsOf(Identifier table) throws NoSuchTableException {
    String uri = namespaces.uri(table);
    if (uri == null) {
      throw new NoSuchTableException(table);
    }
    return options(uri);
  }

  // -- tables that a query makes ----------------------------------------------------------------------------------------

  @Override
  @SuppressWarnings("deprecation") // as createTable
  public StagedTable stageCreate(
      Identifier table, Column[] columns, Transform[] partitions, Map<String, String> properties)
      throws TableAlreadyExistsException, NoSuchNamespaceException {
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
    return stage(table, columns, partitions, properties, "create_or_replace");
  }

  @Override
  public CustomMetric[] supportedCustomMetrics() {
    return WriteMetrics.supported();
  }

  private StagedTable stage(
      Identifier table, Column[] columns, Transform[] partitions, Map<String, String> properties, String mode)
      throws NoSuchNamespaceException {
    checkUnpartitioned(partitions);
    StructType schema = TableChanges.struct(columns);
    return new StagedWrite(options(namespaces.newUri(table)), namespaces.named(table), schema, properties, mode);
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
    String uri = namespaces.uri(Namespaces.identifier(table));
    if (uri == null) {
      throw new IllegalArgumentException("table: expected a name such as t or ns.t, found " + table);
    }
    return options(uri);
  }

  // -- namespaces -------------------------------------------------------------------------------------------------------

  @Override
  public String[] defaultNamespace() {
    return Namespaces.ofDefault();
  }

  @Override
  public String[][] listNamespaces() throws NoSuchNamespaceException {
    return namespaces.below(new String[0]);
  }

  @Override
  public String[][] listNamespaces(String[] namespace) throws NoSuchNamespaceException {
    return namespaces.below(namespace);
  }

  @Override
  public Map<String, String> loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
    return namespaces.properties(namespace);
  }

  @Override
  public void createNamespace(String[] namespace, Map<String, String> properties)
      throws NamespaceAlreadyExistsException {
    namespaces.create(namespace, properties);
  }

  @Override
  public void alterNamespace(String[] namespace, NamespaceChange... changes) throws NoSuchNamespaceException {
    namespaces.alter(namespace, changes);
  }

  @Override
  public boolean dropNamespace(String[] namespace, boolean cascade)
      throws NoSuchNamespaceException, NonEmptyNamespaceException {
    return namespaces.drop(namespace, cascade);
  }
}
