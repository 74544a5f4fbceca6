import java.io.FileOutputStream;
import java.io.OutputStream;
import java.nio.file.Path;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler;

/** HDFS and YARN with one node below a directory, where their settings are written. It runs until its input ends. */
public final class MiniYarn {
    private MiniYarn() {}

    public static void main(String[] arguments) throws Exception {
        Configuration files = new Configuration();
        files.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, Path.of(arguments[0], "hdfs").toString());
        files.setBoolean("dfs.permissions.enabled", false);
        YarnConfiguration settings = new YarnConfiguration();
        // The node counts the memory that its processes reserve, and a JVM reserves more than it uses.
        settings.setBoolean(YarnConfiguration.NM_VMEM_CHECK_ENABLED, false);
        settings.set(YarnConfiguration.RM_SCHEDULER, FifoScheduler.class.getName());
        try (MiniDFSCluster hdfs = new MiniDFSCluster.Builder(files).numDataNodes(1).build();
                MiniYARNCluster yarn = new MiniYARNCluster("logbrook", 1, 1, 1)) {
            hdfs.waitActive();
            settings.set("fs.defaultFS", hdfs.getURI().toString());
            yarn.init(settings);
            yarn.start();
            yarn.waitForNodeManagersToConnect(60_000);
            try (OutputStream file = new FileOutputStream(Path.of(arguments[0], "yarn-site.xml").toFile())) {
                yarn.getConfig().writeXml(file);
            }
            try (OutputStream file = new FileOutputStream(Path.of(arguments[0], "core-site.xml").toFile())) {
                Configuration core = new Configuration(false);
                core.set("fs.defaultFS", hdfs.getURI().toString());
                core.writeXml(file);
            }
            System.out.println("ready");
            System.out.flush();
            while (System.in.read() >= 0) {
                // Wait for the end of the input.
            }
        }
    }
}
