"""The results pages: tables and numbers that are filled in from the files under benchmarks/results."""
