import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicReference;

/**
 * Runs one main class after the other in one JVM, because a JVM takes a second to start and Kafka has twenty tools.
 *
 * <p>A request is a class name, its arguments, its standard input and a number of milliseconds; the answer is the exit
 * code and what was written to standard output and standard error. Numbers have four bytes, and texts their length
 * before them. A tool that does not end in time is answered for with {@link #TIMED_OUT} and the place where it hangs;
 * the host is of no use afterwards.
 */
public final class ToolHost {
    private static final int TIMED_OUT = -1;
    private static final AtomicReference<Integer> EXIT_CODE = new AtomicReference<>();
    private static final Queue<Runnable> SHUTDOWN_HOOKS = new ConcurrentLinkedQueue<>();

    /** Thrown in place of ending the JVM. It has no words, because some tools catch it and print them. */
    private static final class ToolExit extends Error {
        private static final long serialVersionUID = 1;

        ToolExit() {
            super("", null, false, false);
        }

        @Override
        public String toString() {
            return "";
        }
    }

    public static void main(String[] arguments) throws Exception {
        DataInputStream requests = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(System.out);
        while (true) {
            String name;
            try {
                name = readText(requests);
            } catch (EOFException end) {
                break;
            }
            String[] toolArguments = new String[requests.readInt()];
            for (int i = 0; i < toolArguments.length; i++) {
                toolArguments[i] = readText(requests);
            }
            byte[] input = readBytes(requests);
            run(name, toolArguments, input, requests.readInt(), answers);
        }
        // Threads that a tool left behind must not keep the JVM.
        Runtime.getRuntime().halt(0);
    }

    /** What a tool calls to end the JVM. The first code counts: a tool may catch its own end and call it a failure. */
    static void exit(int code) {
        EXIT_CODE.compareAndSet(null, code);
        throw new ToolExit();
    }

    /** What a tool would do when the JVM ends, it does when the tool ends. */
    static void addShutdownHook(Runnable hook) {
        SHUTDOWN_HOOKS.add(hook);
    }

    private static void run(String name, String[] arguments, byte[] input, int timeoutMs, DataOutputStream answers)
            throws Exception {
        ByteArrayOutputStream output = new ByteArrayOutputStream();
        ByteArrayOutputStream errors = new ByteArrayOutputStream();
        System.setIn(new ByteArrayInputStream(input));
        System.setOut(new PrintStream(output, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(errors, true, StandardCharsets.UTF_8));
        EXIT_CODE.set(null);
        Thread tool = new Thread(() -> call(name, arguments), name);
        tool.setDaemon(true);
        tool.start();
        tool.join(timeoutMs);
        int code;
        if (tool.isAlive()) {
            code = TIMED_OUT;
            System.err.println("no end after " + timeoutMs + " ms, at:");
            for (StackTraceElement place : tool.getStackTrace()) {
                System.err.println("\tat " + place);
            }
        } else {
            code = EXIT_CODE.get() == null ? 0 : EXIT_CODE.get();
        }
        answers.writeInt(code);
        writeBytes(answers, output.toByteArray());
        writeBytes(answers, errors.toByteArray());
        answers.flush();
    }

    private static void call(String name, String[] arguments) {
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException failure) {
            if (!(failure.getCause() instanceof ToolExit)) {
                failure.getCause().printStackTrace();
                EXIT_CODE.compareAndSet(null, 1);
            }
        } catch (ReflectiveOperationException failure) {
            failure.printStackTrace();
            EXIT_CODE.compareAndSet(null, 1);
        }
        for (Runnable hook = SHUTDOWN_HOOKS.poll(); hook != null; hook = SHUTDOWN_HOOKS.poll()) {
            hook.run();
        }
    }

    private static String readText(DataInputStream requests) throws IOException {
        return new String(readBytes(requests), StandardCharsets.UTF_8);
    }

    private static byte[] readBytes(DataInputStream requests) throws IOException {
        byte[] bytes = new byte[requests.readInt()];
        requests.readFully(bytes);
        return bytes;
    }

    private static void writeBytes(DataOutputStream answers, byte[] bytes) throws IOException {
        answers.writeInt(bytes.length);
        answers.write(bytes);
    }
}
