import java.lang.reflect.InvocationTargetException;

/** Runs one scenario: `Scenario CLASS METHOD HOST:PORT`. It prints nothing and throws where the rule is broken. */
public final class Scenario {
    public static void main(String[] arguments) throws Throwable {
        String name = arguments[1];
        try (Kit kit = new Kit(arguments[2], "java-" + name)) {
            Class.forName(arguments[0]).getDeclaredMethod(name, Kit.class).invoke(null, kit);
        } catch (InvocationTargetException failure) {
            throw failure.getCause();
        }
    }
}
