# plain.py
from callsheet.client import SyncClient

with SyncClient() as client:
    job = client.create("chat", {"prompt": "Good evening!"})
    for event in client.events(job.job_id):
        pass
    print(event.type, client.wait(job.job_id)["text"])  # → done You said: Good evening!
