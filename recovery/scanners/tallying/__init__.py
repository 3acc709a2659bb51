"""Counts in the database what whoever scrapes us asks for, so that no scrape has to ask the database."""
