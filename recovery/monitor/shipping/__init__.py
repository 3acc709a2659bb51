"""Log shipping: reads a server's log files and journal, and writes each line once to a stream in the state store."""
