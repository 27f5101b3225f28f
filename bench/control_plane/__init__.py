"""Workers over HTTP: what parked claims cost, how fast jobs go round, how soon a parked worker has its job."""
