"""What is known of videos: their text, when it is on screen, and how it is found. On SQLite and on PostgreSQL alike."""
