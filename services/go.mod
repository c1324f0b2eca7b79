module ankusa.dev/services

go 1.26.0

require ankusa.dev/ferry v0.0.0

replace ankusa.dev/ferry => ../ferry

replace ankusa.dev/proto => ../proto

replace ankusa.dev/gateway => ../gateway
