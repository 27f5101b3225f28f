"""Contract 000, Euterpe: transcoding jobs over HTTP, with signed callbacks and refreshable credentials."""
