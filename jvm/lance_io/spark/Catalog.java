package lance_io.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * A catalog of the tables in a folder: `spark.sql.catalog.lance=lance_io.spark.Catalog`, and the folder in
 * `spark.sql.catalog.lance.path`. The table `t` is the folder `t.lance` in it; a name with a slash is the path of a table
 * elsewhere.
 *
 * <p>It has one namespace, `default`, which names need not say.
 */
public final class Catalog implements TableCatalog, SupportsNamespaces {
  private static final String DEFAULT = "default";
  private static final String PATH = "path";
  private static final String LATER =
      " comes with a later release of the catalog; df.write.format(\"lance_io\") creates tables, and the Python API"
          + " changes them";

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
    String[] namespace = table.namespace();
    int depth = namespace.length;
    try {
      if (depth > 0 && !isDefault(namespace) && isDefault(Arrays.copyOf(namespace, depth - 1))) {
        if (MetadataTable.NAMES.contains(table.name())) {
          String of = namespace[depth - 1];
          return MetadataTable.load(options(uri(of)), moment, table.name(), name + "." + of + "." + table.name());
        }
      } else if (isDefault(namespace)) {
        String shown = table.name().contains("/") ? null : name + "." + table.name();
        LanceTable loaded = new LanceTable(options(uri(table.name())), null, moment, shown);
        loaded.schema(); // opens it
        return loaded;
      }
    } catch (MissingTableException e) {
      // Spark says that there is none.
    }
    throw new NoSuchTableException(table);
  }

  private String uri(String table) {
    return table.contains("/") ? table : path.replaceFirst("/+$", "") + "/" + table + ".lance";
  }

  @Override
  @SuppressWarnings("deprecation") // what Spark calls now asks this one, and 4.1 knows no other
  public Table createTable(
      Identifier table, Column[] columns, Transform[] partitions, Map<String, String> properties) {
    throw new UnsupportedOperationException("CREATE TABLE" + LATER);
  }

  @Override
  public Table alterTable(Identifier table, TableChange... changes) {
    throw new UnsupportedOperationException("ALTER TABLE" + LATER);
  }

  @Override
  public boolean dropTable(Identifier table) {
    throw new UnsupportedOperationException("DROP TABLE" + LATER);
  }

  @Override
  public void renameTable(Identifier from, Identifier to) {
    throw new UnsupportedOperationException("ALTER TABLE ... RENAME" + LATER);
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
