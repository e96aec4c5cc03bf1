/** Collects garbage on several threads while the compilers are at work. */
public class Work {
    static int[] sort(int n, int seed) {
        java.util.List<Integer> list = new java.util.ArrayList<>();
        for (int i = 0; i < n; i++) list.add((seed = seed * 1103515245 + 12345) >>> 8);
        java.util.Collections.sort(list);
        return list.stream().mapToInt(Integer::intValue).toArray();
    }

    public static void main(String[] arguments) throws Exception {
        long[] sums = new long[4];
        Thread[] threads = new Thread[sums.length];
        for (int t = 0; t < threads.length; t++) {
            int id = t;
            threads[t] = new Thread(() -> {
                for (int round = 0; round < 30; round++) sums[id] += sort(5000, id * 31 + round)[2500];
            });
            threads[t].start();
        }
        for (Thread thread : threads) thread.join();
        System.out.println(java.util.Arrays.toString(sums));
    }
}
