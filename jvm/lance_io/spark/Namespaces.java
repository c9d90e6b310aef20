package lance_io.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.apache.spark.sql.catalyst.analysis.NamespaceAlreadyExistsException;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NonEmptyNamespaceException;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import scala.Option;

/**
 * The namespaces of a catalog, and where their tables are.
 *
 * <p>`default` is the folder of the catalog, and needs no name; others are folders in it, at any depth. The table `t` of
 * a namespace is the folder `t.lance` in that of the namespace. A table's name with a slash is the path of a table
 * elsewhere, of no namespace.
 */
final class Namespaces {
  private static final String DEFAULT = "default";
  private static final String SUFFIX = ".lance"; // of folders that are tables
  private static final String LOCATION = "location";

  private final String catalog;
  private final String root;
  private final Function<String, TableOptions> options; // of a path

  Namespaces(String catalog, String path, Function<String, TableOptions> options) {
    this.catalog = catalog;
    this.root = path.replaceFirst("/+$", "");
    this.options = options;
  }

  static String[] ofDefault() {
    return new String[] {DEFAULT};
  }

  private static boolean isDefault(String[] namespace) {
    return namespace.length == 0 || (namespace.length == 1 && namespace[0].equals(DEFAULT));
  }

  /** The folder of a namespace; null for a name that none can have. */
  private String folder(String[] namespace) {
    if (isDefault(namespace)) {
      return root;
    }
    StringBuilder path = new StringBuilder(root);
    for (String part : namespace) {
      if (!isName(part)) {
        return null;
      }
      path.append('/').append(part);
    }
    return path.toString();
  }

  private static boolean isName(String part) {
    boolean hasPath = part.isBlank() || part.contains("/") || part.contains("\\");
    boolean isHidden = part.startsWith(".") || part.startsWith("_");
    return !hasPath && !isHidden && !part.endsWith(SUFFIX) && !part.equals(DEFAULT);
  }

  // -- tables -----------------------------------------------------------------------------------------------------------

  /** Where a table is, whether there is one or not; null for a name that no table can have. */
  String uri(Identifier table) {
    if (table.name().contains("/")) {
      return isDefault(table.namespace()) ? table.name() : null;
    }
    String folder = folder(table.namespace());
    return folder == null ? null : folder + "/" + table.name() + SUFFIX;
  }

  /** Where a new table goes. */
  String newUri(Identifier table) throws NoSuchNamespaceException {
    check(table.namespace());
    String uri = uri(table);
    if (uri == null) {
      throw Refusals.analysis("the table " + table + ": the path of a table elsewhere is of no namespace");
    }
    return uri;
  }

  /** The table that a name such as `ns.t` means, with back-quotes around parts that have dots. */
  static Identifier identifier(String text) {
    if (text.contains("/") && !text.contains("`")) {
      return Identifier.of(new String[0], text);
    }
    List<String> parts = new ArrayList<>();
    StringBuilder part = new StringBuilder();
    boolean isQuoted = false;
    for (char letter : text.replace("``", "\0").toCharArray()) { // doubled ones stand for themselves
      if (letter == '`') {
        isQuoted = !isQuoted;
      } else if (letter == '.' && !isQuoted) {
        parts.add(part.toString());
        part.setLength(0);
      } else {
        part.append(letter == '\0' ? '`' : letter);
      }
    }
    parts.add(part.toString());
    int last = parts.size() - 1;
    return Identifier.of(parts.subList(0, last).toArray(new String[0]), parts.get(last));
  }

  /** The name of a table in plans; null for the path of one elsewhere, which says itself what it is. */
  String shown(Identifier table) {
    return table.name().contains("/") ? null : named(table);
  }

  /** The name of a table with those of the catalog and of its namespace. */
  String named(Identifier table) {
    String[] namespace = isDefault(table.namespace()) ? new String[0] : table.namespace();
    List<String> parts = new ArrayList<>(List.of(catalog));
    parts.addAll(Arrays.asList(namespace));
    parts.add(table.name());
    return String.join(".", parts);
  }

  /** The table of which `lance.t.history` and the like tell; null for the name of no such table. */
  static Identifier described(Identifier table) {
    String[] namespace = table.namespace();
    int last = namespace.length - 1;
    return last >= 0 && MetadataTable.NAMES.contains(table.name())
        ? Identifier.of(Arrays.copyOf(namespace, last), namespace[last])
        : null;
  }

  /** A new name of a table as Spark passes it on, which leaves the name of the catalog before it. */
  Identifier withoutCatalog(Identifier table) {
    String[] namespace = table.namespace();
    return namespace.length > 0 && namespace[0].equals(catalog)
        ? Identifier.of(Arrays.copyOfRange(namespace, 1, namespace.length), table.name())
        : table;
  }

  Identifier[] tables(String[] namespace) throws NoSuchNamespaceException {
    List<String> names = names("list", namespace);
    if (names.isEmpty()) {
      check(namespace);
    }
    String[] shown = isDefault(namespace) ? ofDefault() : namespace;
    return names.stream().map(table -> Identifier.of(shown, table)).toArray(Identifier[]::new);
  }

  // -- namespaces -------------------------------------------------------------------------------------------------------

  private ObjectNode request(String operation, String folder) {
    return options.apply(folder).request(operation);
  }

  private JsonNode make(ObjectNode request, String folder) {
    return Changes.make(options.apply(folder).python(), request);
  }

  private List<String> names(String operation, String[] namespace) throws NoSuchNamespaceException {
    String folder = folder(namespace);
    if (folder == null) {
      throw new NoSuchNamespaceException(namespace);
    }
    List<String> names = new ArrayList<>();
    JsonNode answer = Worker.ask(options.apply(folder).python(), request(operation, folder));
    answer.get("names").forEach(each -> names.add(each.asText()));
    return names;
  }

  /** The properties of a namespace. */
  Map<String, String> properties(String[] namespace) throws NoSuchNamespaceException {
    String folder = folder(namespace);
    if (folder == null) {
      throw new NoSuchNamespaceException(namespace);
    }
    Map<String, String> all = new HashMap<>();
    if (!isDefault(namespace)) {
      JsonNode answer = Worker.ask(options.apply(folder).python(), request("namespace", folder));
      if (!answer.get("exists").asBoolean()) {
        throw new NoSuchNamespaceException(namespace);
      }
      answer.get("properties").properties().forEach(each -> all.put(each.getKey(), each.getValue().asText()));
    }
    all.put(LOCATION, folder);
    return all;
  }

  /** Throws unless there is such a namespace. */
  void check(String[] namespace) throws NoSuchNamespaceException {
    if (!isDefault(namespace)) {
      properties(namespace);
    }
  }

  String[][] below(String[] namespace) throws NoSuchNamespaceException {
    if (namespace.length == 1 && isDefault(namespace)) {
      return new String[0][];
    }
    check(namespace);
    List<String[]> all = new ArrayList<>();
    if (namespace.length == 0) {
      all.add(ofDefault());
    }
    for (String part : names("namespaces", namespace)) {
      if (isName(part)) {
        String[] inner = Arrays.copyOf(namespace, namespace.length + 1);
        inner[namespace.length] = part;
        all.add(inner);
      }
    }
    return all.toArray(new String[0][]);
  }

  void create(String[] namespace, Map<String, String> properties) throws NamespaceAlreadyExistsException {
    if (isDefault(namespace)) {
      throw new NamespaceAlreadyExistsException(namespace);
    }
    String folder = folder(namespace);
    if (folder == null) {
      throw Refusals.analysis(
          "the namespace " + String.join(".", namespace) + ": its folder cannot have this name, which is " + DEFAULT
              + ", empty, has a slash, begins with a dot or _, or ends in " + SUFFIX);
    }
    if (namespace.length == 1 && namespace[0].equals(Procedures.NAMESPACE)) {
      throw Refusals.analysis("the namespace " + Procedures.NAMESPACE + " is that of the procedures");
    }
    for (int depth = 1; depth < namespace.length; depth++) {
      create(folder(Arrays.copyOf(namespace, depth)), Map.of()); // those around it, if they are not there
    }
    if (!create(folder, properties)) {
      throw new NamespaceAlreadyExistsException(namespace);
    }
  }

  /** Creates a namespace; whether there was none. */
  private boolean create(String folder, Map<String, String> properties) {
    ObjectNode request = request("create_namespace", folder);
    Changes.put(request, "properties", properties);
    return make(request, folder).get("done").asBoolean();
  }

  void alter(String[] namespace, NamespaceChange[] changes) throws NoSuchNamespaceException {
    refuseDefault(namespace, "has no properties");
    check(namespace);
    String folder = folder(namespace);
    Map<String, String> given = new HashMap<>();
    ObjectNode request = request("alter_namespace", folder);
    ArrayNode removed = request.putArray("removed");
    for (NamespaceChange change : changes) {
      if (change instanceof NamespaceChange.SetProperty set) {
        given.put(set.property(), set.value());
      } else if (change instanceof NamespaceChange.RemoveProperty remove) {
        removed.add(remove.property());
      }
    }
    Changes.put(request, "properties", given);
    make(request, folder);
  }

  boolean drop(String[] namespace, boolean cascade) throws NoSuchNamespaceException, NonEmptyNamespaceException {
    refuseDefault(namespace, "stays");
    check(namespace);
    String folder = folder(namespace);
    JsonNode left = make(request("drop_namespace", folder).put("cascade", cascade), folder).get("left");
    if (!left.isEmpty()) {
      List<String> names = new ArrayList<>();
      left.forEach(each -> names.add(each.asText()));
      String shown = String.join(", ", names);
      if (cascade) { // Spark would only say that it is not empty
        throw Refusals.analysis(
            "the namespace " + String.join(".", namespace) + " stays, with all of its tables, because of files that belong to none: "
                + shown);
      }
      throw new NonEmptyNamespaceException(namespace, "it has " + shown, Option.empty());
    }
    return true;
  }

  private static void refuseDefault(String[] namespace, String why) {
    if (isDefault(namespace)) {
      throw Refusals.analysis("the namespace " + DEFAULT + " is the folder of the catalog, and " + why);
    }
  }
}
