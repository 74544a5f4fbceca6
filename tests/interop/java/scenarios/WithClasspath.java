import java.io.File;
import java.net.URL;
import java.net.URLClassLoader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** `WithClasspath CLASSPATH PROGRAM ARGUMENT...`: runs a program with its own classpath, in the JVM that already runs. */
public final class WithClasspath {
    public static void main(String[] arguments) throws Exception {
        List<URL> urls = new ArrayList<>();
        for (String path : arguments[0].split(File.pathSeparator)) {
            urls.add(new File(path).toURI().toURL());
        }
        Thread thread = Thread.currentThread();
        ClassLoader before = thread.getContextClassLoader();
        try (URLClassLoader loader =
                new URLClassLoader(urls.toArray(new URL[0]), ClassLoader.getPlatformClassLoader())) {
            thread.setContextClassLoader(loader);
            String[] rest = Arrays.copyOfRange(arguments, 2, arguments.length);
            loader.loadClass(arguments[1]).getMethod("main", String[].class).invoke(null, (Object) rest);
        } finally {
            thread.setContextClassLoader(before);
        }
    }
}
