/*
 * Column pruning for batch reads of the formats `logbrook` and `logbrook_table`.
 *
 * An optimizer rule gives each read a table of its own, before Spark pushes filters and columns down. It builds scans of
 * Spark's own classes, with only the columns that the query uses. Spark's table for sources in Python has no column
 * pruning, and keeps the result of filter pushdown for all queries of a DataFrame, also for those without the filter.
 *
 * `pruning.py` compiles this file in the driver's JVM with Janino, the compiler that Spark uses for generated code.
 * Janino has no lambdas and ignores type parameters. Executors need none of these classes.
 */
package logbrook;

import java.lang.reflect.Field;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.Set;

import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Function1;
import scala.Some;
import scala.runtime.AbstractFunction1;
import scala.runtime.AbstractPartialFunction;

/** Creates the rule for a session, as SparkSessionExtensions expects. */
public class Pruning extends AbstractFunction1 {
    static final Set FORMATS = new HashSet(Arrays.asList(new String[] {"logbrook", "logbrook_table"}));

    private final Field source;
    private final Field created;

    /** Throws NoSuchFieldException if this version of Spark has other classes. */
    public Pruning() throws NoSuchFieldException {
        source = PythonTable.class.getDeclaredField("ds");
        source.setAccessible(true);
        created = PythonDataSourceV2.class.getDeclaredField("dataSourceInPython");
        created.setAccessible(true);
    }

    public Object apply(Object session) {
        return new PruningRule(this);
    }

    PythonDataSourceV2 sourceOf(PythonTable table) {
        try {
            return (PythonDataSourceV2) source.get(table);
        } catch (IllegalAccessException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Returns a source without plan, for the same Python object as `original`. */
    PythonDataSourceV2 copyOf(PythonDataSourceV2 original, String format) {
        PythonDataSourceV2 copy = new PythonDataSourceV2();
        copy.setShortName(format);
        // Looked up in the active session, which the thread that runs the query may not have.
        copy.source();
        try {
            created.set(copy, created.get(original));
        } catch (IllegalAccessException error) {
            throw new IllegalStateException(error);
        }
        return copy;
    }
}

class PruningRule extends Rule {
    private final Pruning pruning;

    PruningRule(Pruning pruning) {
        this.pruning = pruning;
    }

    public TreeNode apply(TreeNode plan) {
        return plan.transformDown(new TableReplacement(pruning));
    }
}

class TableReplacement extends AbstractPartialFunction {
    private final Pruning pruning;

    TableReplacement(Pruning pruning) {
        this.pruning = pruning;
    }

    public boolean isDefinedAt(Object node) {
        if (!(node instanceof DataSourceV2Relation)) {
            return false;
        }
        Object table = ((DataSourceV2Relation) node).table();
        return table instanceof PythonTable && Pruning.FORMATS.contains(((PythonTable) table).name());
    }

    public Object applyOrElse(Object node, Function1 otherwise) {
        if (!isDefinedAt(node)) {
            return otherwise.apply(node);
        }
        DataSourceV2Relation relation = (DataSourceV2Relation) node;
        return relation.copy(
            new PrunableTable(pruning, (PythonTable) relation.table()),
            relation.output(),
            relation.catalog(),
            relation.identifier(),
            relation.options(),
            relation.timeTravelSpec());
    }
}

class PrunableTable implements SupportsRead {
    private final Pruning pruning;
    private final PythonTable table;

    PrunableTable(Pruning pruning, PythonTable table) {
        this.pruning = pruning;
        this.table = table;
    }

    public String name() {
        return table.name();
    }

    public StructType schema() {
        return table.schema();
    }

    public Set capabilities() {
        return Collections.singleton(TableCapability.BATCH_READ);
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
        return new PrunedScanBuilder(pruning, table, options);
    }
}

class PrunedScanBuilder implements SupportsPushDownFilters, SupportsPushDownRequiredColumns {
    private final Pruning pruning;
    private final PythonTable table;
    private final StructType schema;
    private final CaseInsensitiveStringMap options;
    private StructType columns;
    private Filter[] filters = new Filter[0];
    /** The builder to which the filters were pushed, with all columns. */
    private PythonScanBuilder filtered;

    PrunedScanBuilder(Pruning pruning, PythonTable table, CaseInsensitiveStringMap options) {
        this.pruning = pruning;
        this.table = table;
        this.schema = table.schema();
        this.options = options;
        this.columns = schema;
    }

    public Filter[] pushFilters(Filter[] filters) {
        this.filters = filters;
        filtered = newBuilder(schema);
        return filtered.pushFilters(filters);
    }

    public Filter[] pushedFilters() {
        return filtered == null ? new Filter[0] : filtered.pushedFilters();
    }

    public void pruneColumns(StructType required) {
        Set names = new HashSet(Arrays.asList(required.fieldNames()));
        for (int index = 0; index < filters.length; index++) {
            // Spark looks up the columns of all filters in the schema of the scan.
            String[] references = filters[index].references();
            for (int number = 0; number < references.length; number++) {
                names.add(firstPart(references[number]));
            }
        }
        if (names.isEmpty()) {
            // A count uses no column, but rows need one.
            names.add(smallestColumn());
        }
        // Otherwise a name was quoted.
        columns = Arrays.asList(schema.fieldNames()).containsAll(names) ? select(names) : schema;
    }

    public Scan build() {
        if (filtered != null && columns.length() == schema.length()) {
            return filtered.build();
        }
        PythonScanBuilder builder = newBuilder(columns);
        if (filtered != null) {
            builder.pushFilters(filters);
        }
        return builder.build();
    }

    private PythonScanBuilder newBuilder(StructType columns) {
        PythonDataSourceV2 source = pruning.sourceOf(table);
        // Spark creates the Python object when it loads the DataFrame; if it has not, it does so now.
        source.getOrCreateDataSourceInPython(table.name(), options, new Some(schema));
        return new PythonScanBuilder(pruning.copyOf(source, table.name()), table.name(), columns, options);
    }

    /** Returns the selected columns as they are in the table: a struct keeps all its fields. */
    private StructType select(Set names) {
        StructType selected = new StructType();
        StructField[] fields = schema.fields();
        for (int index = 0; index < fields.length; index++) {
            if (names.contains(fields[index].name())) {
                selected = selected.add(fields[index]);
            }
        }
        return selected;
    }

    private String smallestColumn() {
        StructField[] fields = schema.fields();
        StructField smallest = fields[0];
        for (int index = 1; index < fields.length; index++) {
            if (fields[index].dataType().defaultSize() < smallest.dataType().defaultSize()) {
                smallest = fields[index];
            }
        }
        return smallest.name();
    }

    private static String firstPart(String reference) {
        int end = reference.indexOf('.');
        return end < 0 ? reference : reference.substring(0, end);
    }
}
