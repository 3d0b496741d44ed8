"""The report: what the results and one's own runs show, as a site of static pages that needs no network."""
