package counterpoise;

import java.util.Arrays;

/** Runs another class's main, and ends at once when stdin does: a server never outlives the tests that started it. */
final class Tethered {
    private Tethered() { }

    public static void main(String[] args) throws Exception {
        Thread tether = new Thread(() -> {
            try {
                while (System.in.read() >= 0) { }
            } catch (java.io.IOException closed) {
                // Closed is as good as ended.
            }
            Runtime.getRuntime().halt(1);
        }, "tether");
        tether.setDaemon(true);
        tether.start();
        Class.forName(args[0])
            .getMethod("main", String[].class)
            .invoke(null, (Object) Arrays.copyOfRange(args, 1, args.length));
    }
}
