import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.txn.TxnDbUtil;

/** A Hive metastore with its database in memory. The arguments are its port and the directory of its warehouse. */
public final class Metastore {
    private Metastore() {}

    public static void main(String[] arguments) throws Throwable {
        // The constructor of the handler reads some settings from a configuration of its own.
        System.setProperty("hive.metastore.warehouse.dir", arguments[1]);
        HiveConf configuration = new HiveConf();
        configuration.set("javax.jdo.option.ConnectionURL", "jdbc:derby:memory:metastore;create=true");
        configuration.set("javax.jdo.option.ConnectionDriverName", "org.apache.derby.jdbc.EmbeddedDriver");
        configuration.set("datanucleus.connectionPoolingType", "HikariCP");
        configuration.set("datanucleus.schema.autoCreateAll", "true");
        configuration.set("hive.metastore.schema.verification", "false");
        configuration.set("hive.metastore.warehouse.dir", arguments[1]);
        // The tables of locks are not part of the schema that is created automatically.
        TxnDbUtil.setConfValues(configuration);
        TxnDbUtil.prepDb(configuration);
        HiveMetaStore.startMetaStore(Integer.parseInt(arguments[0]), null, configuration);
    }
}
