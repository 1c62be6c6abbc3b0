"""What people use: the command line, and the tables read without a JVM."""
