"""The interactive dashboard, and the same views as a report in one file.

The server keeps no state: a page asks with a scenario's name (or its text, which stays in the browser) and the fields
that differ from it, and both are part of the page's address.
"""
