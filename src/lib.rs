//! Sporran: retrieve, read, reason and extract for knowledge-intensive language tasks.
