"""The catalogue in a SQLite file, normally that of the jobs. `keeping` needs less than `store`."""
