module ankusa.dev/ferry

go 1.26.0
