"""Contract 000, Euterpe: transcoding jobs over HTTP, with signed callbacks and credentials that are refreshed."""
