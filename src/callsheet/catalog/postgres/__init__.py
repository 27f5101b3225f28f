"""The catalogue in a PostgreSQL database, normally that of the jobs. `schema` needs less than `store`."""
