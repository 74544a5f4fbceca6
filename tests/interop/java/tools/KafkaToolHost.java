import org.apache.kafka.common.utils.Exit;

/** A {@link ToolHost} for Kafka's own tools, which end the JVM through a class that lets itself be told otherwise. */
public final class KafkaToolHost {
    public static void main(String[] arguments) throws Exception {
        Exit.setExitProcedure((code, message) -> ToolHost.exit(code));
        Exit.setHaltProcedure((code, message) -> ToolHost.exit(code));
        Exit.setShutdownHookAdder((name, hook) -> ToolHost.addShutdownHook(hook));
        ToolHost.main(arguments);
    }
}
