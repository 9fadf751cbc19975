module sheaf.example/go

go 1.19
