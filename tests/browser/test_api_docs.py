"""The page of the API's docs, drawn by Swagger UI under our content security policy."""


def test_docs_page_draws_the_operations_and_loads_nothing_from_elsewhere(new_page):
    page = new_page()

    page.goto("/api/docs")
    page.locator(".opblock").first.wait_for()
    # Of so many only those in sight are drawn.
    page.locator(".operation-filter-input").fill("Runs")
    page.locator("#operations-Runs-run_an_agent").wait_for()
    page.locator("#operations-Runs-run_an_agent button.opblock-summary-control").click()

    page.get_by_text("Closing the connection never stops the run").wait_for()
