"""One large array on huge pages in five languages, and JMH's benchmark in a JVM: built, run, and
judged by smaps."""
