import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** HDFS with one data node below a directory. It prints the port of its name node, and runs until its input ends. */
public final class MiniDfs {
    private MiniDfs() {}

    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        configuration.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, arguments[0]);
        configuration.setBoolean("dfs.permissions.enabled", false);
        try (MiniDFSCluster cluster = new MiniDFSCluster.Builder(configuration).numDataNodes(1).build()) {
            cluster.waitActive();
            System.out.println("port=" + cluster.getNameNodePort());
            System.out.flush();
            while (System.in.read() >= 0) {
                // Wait for the end of the input.
            }
        }
    }
}
