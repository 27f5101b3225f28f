"""The server over HTTP: new jobs beside an empty route, streams of events, and uvicorn beside granian."""
